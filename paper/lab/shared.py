"""Rows that several tables show: a method on the model, with perplexity, pairs kept, balance, and answers.

A perplexity is never given without the pairs it was reached with and the largest group.
"""

import math
from collections.abc import Sequence
from typing import Any

from focus_runtime.measure.intervals import Interval, mean_interval
from focus_runtime.measure.perplexity import Scores, compare, score
from focus_runtime.routing.centroids import Centroids, no_groups
from paper.lab.answers import last_words
from paper.lab.lab import Lab, composed
from paper.methods import FullFinetune, Longformer, LoRA, MagicPIG, Method, Performer, RoutingTransformer, SparQ
from paper.output.report import Column, Figure, Row, Series
from paper.reported import REPORTED

METHOD = Column("method", "method")
TRAINED = Column("trained", "weights trained", 0)
RELATIVE = Column("relative", "against full attention", percent=True, signed=True)
RETAINED = Column("retained", "pairs kept", 1, percent=True)
DOMINANCE = Column("dominance", "largest group", 1, percent=True)
QUALITY = [
    Column("ppl", "perplexity"),
    RELATIVE,
    Column("p", "p", 4),
    RETAINED,
    Column("distant", "distant pairs kept", 1, percent=True),
    DOMINANCE,
    Column("dominance_max", "largest group, worst layer", 1, percent=True),
]
PAPER_PPL = Column("paper_ppl", "perplexity (GPT-2, PG-19)", 1, paper=True)
KEYS = Column("keys", "keys a query", 1)
SELECTED = 32  # keys a query reads under SparQ and the window of MagicPIG, as in the paper


# --- cells


def quality_cells(full: Scores, runs: Scores | Sequence[Scores]) -> Row:
    """Cells of a row under Focus: perplexity and difference with intervals, with balance and pairs kept."""
    compared = compare(full, runs)
    return {
        "ppl": _interval(compared["focus_perplexity"]),
        "relative": _interval(compared["relative_difference"]),
        "p": compared["p_value"],
        "dominance": compared["dominance"],
        "dominance_max": compared["highest_dominance"],
        "retained": compared["retained_pairs"],
        "distant": compared["distant_kept"],
        "seeds": compared["seeds"],
    }


def _interval(values: dict[str, float | None]) -> Interval:
    assert values["value"] is not None
    return Interval(values["value"], values["low"], values["high"], 0)


def plain_cells(full: Scores, scores: Scores) -> Row:
    """Cells of a row without groups: perplexity and the paired difference to full attention."""
    return {
        "ppl": mean_interval(scores.nll, scores.scored).through(_exp),
        "relative": mean_interval(scores.nll - full.nll, full.scored).through(lambda value: _exp(value) - 1.0),
    }


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def relative(one: Scores, other: Scores) -> Interval:
    """Difference of the perplexity of `one` from that of `other` on the same sequences, as a share of it."""
    return mean_interval(one.nll - other.nll, other.scored).through(math.expm1)


def value_of(row: Row, key: str = "ppl") -> float:
    """A cell as a number; NaN where it was not measured."""
    cell: Any = row.get(key)
    return math.nan if cell is None else float(getattr(cell, "value", cell))


def of_paper(values: dict[str, float]) -> Row:
    """The paper's numbers as cells of a row."""
    return {f"paper_{key}": value for key, value in values.items()}


def weights_of(centroids: Centroids) -> int:
    """Weights of all routers."""
    return sum(p.numel() for router in centroids.routers.values() for p in router.parameters())


def perplexity_bars(rows: list[Row]) -> Figure:
    """Bars of perplexity, without those far beyond full attention's."""
    full = value_of(rows[0])
    shown = [row for row in rows if value_of(row) < 5 * full]
    series = Series("ours", [row["method"] for row in shown], [value_of(row) for row in shown])
    return Figure("bar", "", "perplexity", [series], marks={"full attention": full})


# --- Focus and what it is held against


def full_row(lab: Lab, name: str = "full attention") -> Row:
    """The model as it is."""
    cells = {"method": name, "trained": 0, "ppl": lab.full().perplexity, "retained": 1.0, "distant": 1.0}
    return {**cells, **last_words(lab, lab.model)}


def null_rows(lab: Lab, groups: int = 4) -> list[Row]:
    """What the same mask keeps without anything learned: window and sinks alone, and random centroids at k = 1."""
    full, random = lab.full(), lab.random(num_groups=groups)
    nothing = quality_cells(full, lab.focus(no_groups(random), top_k=1)) | {"dominance": None, "dominance_max": None}
    return [
        {"method": "window and sinks only", "trained": 0, **nothing},
        {"method": "random centroids, k=1", "trained": 0, **quality_cells(full, lab.focus(random, top_k=1))},
    ]


def focus_rows(lab: Lab, groups: int, top_ks: tuple[int, ...]) -> list[Row]:
    """Focus with trained centroids of so many groups under the hard mask, a row for each k."""
    trained = lab.trained_by_seed(num_groups=groups)
    rows = []
    for top_k in top_ks:
        cells = quality_cells(lab.full(), [lab.focus(centroids, top_k=top_k) for centroids in trained])
        with composed(lab.model, trained[0], top_k=top_k) as focus:
            answers = last_words(lab, focus)
        name = f"Focus K={groups}, k={top_k}"
        rows.append({"method": name, "trained": weights_of(trained[0]), **cells, **answers})
    return rows


def soft_row(lab: Lab) -> Row:
    """Focus under the soft gate that centroids are trained with: every pair is computed, nothing is sparse."""
    trained = lab.trained_by_seed()
    cells = quality_cells(lab.full(), [lab.soft(centroids) for centroids in trained])
    whole = {"retained": 1.0, "distant": 1.0}
    return {"method": "Focus, soft gate", "trained": weights_of(trained[0]), **cells, **whole}


def own_rows(lab: Lab) -> list[Row]:
    """Focus under the soft gate, then under the hard mask at several K and k."""
    soft = {**soft_row(lab), **of_paper(REPORTED["retrofit"]["Focus, soft gate"])}
    return [soft, *focus_rows(lab, 4, (1, 2)), *focus_rows(lab, 8, (1,))]


# --- other methods


def sparse_methods(lab: Lab) -> list[tuple[str, Method]]:
    """Methods of table 1 that are fine-tuned."""
    window, sinks = lab.scale.window, lab.recipe.num_sinks
    return [
        ("Longformer", Longformer(window=window)),
        ("Performer", Performer()),
        ("Routing Transformer", RoutingTransformer(window=window, num_sinks=sinks)),
    ]


def frozen_row(lab: Lab, name: str, method: Method) -> Row:
    """A method on the frozen model as it is."""

    def measured() -> Row:
        with method.attach(lab.model, text=lab.training_sequences(2)) as handle:
            cells = {**plain_cells(lab.full(), score(lab.model, lab.sequences())), "retained": handle.retained_pairs()}
            return {"method": name, "trained": 0, **cells, **last_words(lab, lab.model)}

    lab.full()
    return lab.kept(name, measured, method=repr(method), items=lab.scale.task_items)


def tuned_row(lab: Lab, name: str, method: Method | None) -> Row:
    """A method fine-tuned with all weights on the same data, then compared in fp32 with full attention in fp32."""
    scale = lab.scale

    def measured() -> Row:
        network = lab.fresh_model()
        handle = None if method is None else method.attach(network, text=lab.training_sequences(2))
        weights = FullFinetune().attach(network).parameters()
        what = f"{name}, all weights"
        lab.adapt(what, network, weights, scale.weight_rate, steps=scale.weight_steps, handle=handle, settle=False)
        return {
            "method": name if method is None else f"{name}, fine-tuned",
            "trained": sum(p.numel() for p in weights),
            **plain_cells(lab.precise_full(), score(network, lab.sequences())),
            "retained": 1.0 if handle is None else handle.retained_pairs(),
            **last_words(lab, network),
            **of_paper(REPORTED["retrofit"].get(name, {})),
        }

    settings = {"steps": scale.weight_steps, "rate": scale.weight_rate, "items": scale.task_items}
    return lab.kept(f"{name}, fine-tuned", measured, method=repr(method), **settings)


def selected_keys(lab: Lab) -> int:
    """Keys a query reads under SparQ, and the window of MagicPIG; of short sequences a quarter."""
    return min(SELECTED, lab.scale.seq_len // 4)


def selecting_rows(lab: Lab) -> list[Row]:
    """Methods that choose keys for every query, on the frozen model, each with the keys that a query read."""
    keys = selected_keys(lab)
    methods: dict[str, Method] = {
        "SparQ": SparQ(num_keys=keys, num_local=keys // 2, reallocate=False),
        "SparQ, mean value": SparQ(num_keys=keys, num_local=keys // 2),
        "MagicPIG": MagicPIG(window=keys),
    }
    rows = []
    for name, method in methods.items():
        row = frozen_row(lab, name, method)
        read = row["retained"] * (lab.scale.seq_len + 1) / 2  # mean over the queries of the scored sequences
        rows.append({**row, KEYS.key: read, **of_paper(REPORTED["retrofit"][name])})
    return rows


def selecting_setting(lab: Lab) -> dict[str, str]:
    """What SparQ and MagicPIG are set to, in words; the keys that a query read stand in their rows."""
    keys = selected_keys(lab)
    always = f"window {keys} and {MagicPIG().num_sinks} sinks, always read, and the keys it draws"
    return {"SparQ": f"{keys} where there are so many", "MagicPIG": always}


def lora_rate(lab: Lab) -> float:
    """The learning rate of LoRA where one is taken: the middle one."""
    return lab.scale.lora_rates[len(lab.scale.lora_rates) // 2]


def lora_row(lab: Lab, rank: int) -> Row:
    """LoRA of a rank on the query and value projections: perplexity and last words."""
    rate, steps = lora_rate(lab), lab.scale.steps

    def measured() -> Row:
        network = lab.fresh_model()
        with LoRA(rank=rank, alpha=2.0 * rank).attach(network) as handle:
            lab.adapt(f"LoRA r={rank} rate {rate:g}", network, handle.parameters(), rate, steps=steps)
            cells = {"trained": sum(p.numel() for p in handle.parameters()), "rate": rate, "retained": 1.0}
            return {**cells, **plain_cells(lab.full(), score(network, lab.sequences())), **last_words(lab, network)}

    row = lab.kept(f"LoRA r={rank} rate {rate:g}", measured, steps=steps, items=lab.scale.task_items)
    return {"method": f"LoRA r={rank}", **row}
