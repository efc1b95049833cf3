"""Tables 1 and 2: Focus beside other sparse attentions and beside LoRA, and what each does to what the model knew."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from focus_explorer.reproduce import paper
from focus_explorer.reproduce.lab import Lab, quality_cells
from focus_explorer.reproduce.quality import QUALITY, null_rows
from focus_explorer.reproduce.report import Claim, Column, Figure, Report, Series
from focus_runtime.baselines import FullFinetune, Longformer, LoRA, MagicPIG, Performer, RoutingTransformer, SparQ
from focus_runtime.compose import SoftGate, compose
from focus_runtime.evaluate import Scores, score
from focus_runtime.intervals import mean_interval

SELECTED = 32  # keys a query reads under SparQ and MagicPIG, as in the paper
ACCURACY = [
    Column("short", "last word, within the window", 1, percent=True),
    Column("long", "last word, long passages", 1, percent=True),
]
HUB = [
    Column(name, label, 1, paper=True)
    for name, label in (
        ("paper_hellaswag", "HellaSwag"),
        ("paper_arc_easy", "ARC-E"),
        ("paper_piqa", "PIQA"),
        ("paper_lambada", "LAMBADA"),
    )
]
ITEMS_NOTE = (
    "Last word: lm-eval on passages of the held-out text, once no longer than half the window, where every mask is "
    "full attention, and once as long as the training sequences, where the word occurred only beyond the window. 95 % "
    "intervals over items."
)


def plain_cells(full: Scores, found: Scores) -> dict[str, Any]:
    """Cells of a row without groups: perplexity and the paired difference to full attention."""
    difference = mean_interval(found.nll - full.nll, full.scored)
    return {
        "ppl": mean_interval(found.nll, found.scored).through(_exp),
        "relative": difference.through(_expm1),
    }


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _expm1(value: float) -> float:
    return _exp(value) - 1.0


def _accuracy(lab: Lab, model: Any) -> dict[str, Any]:
    found = lab.accuracy(model)
    return {"short": found["short"], "long": found["long"]}


def _focus_rows(lab: Lab, groups: int, top_ks: tuple[int, ...]) -> list[dict[str, Any]]:
    full, trained = lab.full(), [lab.trained(seed, num_groups=groups) for seed in lab.scale.seeds]
    rows = []
    for top_k in top_ks:
        cells = quality_cells(full, [lab.focus(centroids, top_k=top_k) for centroids in trained])
        focus = compose(lab.model, trained[0], top_k=top_k)
        try:
            rows.append(
                {
                    "method": f"Focus K={groups}, k={top_k}",
                    "trained": _size(trained[0]),
                    **cells,
                    **_accuracy(lab, focus),
                }
            )
        finally:
            focus.detach()
    return rows


def _size(centroids: Any) -> int:
    return sum(p.numel() for router in centroids.routers.values() for p in router.parameters())


def _soft_row(lab: Lab) -> dict[str, Any]:
    """Every pair computed, under the gate centroids are trained with: nothing is sparse here."""
    full, runs = lab.full(), []
    for seed in lab.scale.seeds:
        centroids = lab.trained(seed, num_groups=4)
        focus = compose(lab.model, centroids)
        try:
            with focus.training_gate(SoftGate(centroids.config.gate)):
                runs.append(score(focus, lab.sequences()))
        finally:
            focus.detach()
    return {
        "method": "Focus, soft gate",
        "trained": _size(centroids),
        **quality_cells(full, runs),
        "retained": 1.0,
        "distant": 1.0,
    }


def _tuned(lab: Lab, name: str, method: Any | None, note: str = "") -> dict[str, Any]:
    """A method fine-tuned with all weights on the same data, then scored."""
    network = lab.fresh_model()
    handle = None if method is None else method.attach(network, text=lab.training_sequences(2))
    weights = FullFinetune().attach(network)
    lab.adapt(f"{name}, all weights", network, weights.parameters(), lab.scale.weight_rate, handle=handle)
    found = score(network, lab.sequences())
    lab.log(f"{name}, fine-tuned: perplexity {found.perplexity:.3f}")
    row = {
        "method": f"{name}, fine-tuned{note}" if method is not None else name,
        "trained": sum(p.numel() for p in weights.parameters()),
        **plain_cells(lab.full(), found),
        "retained": 1.0 if handle is None else handle.retained_pairs(),
        **_accuracy(lab, network),
        **_paper(paper.RETROFIT.get(name, {})),
    }
    if handle is not None:
        handle.detach()
    return row


def _attached(lab: Lab, name: str, method: Any, note: str = "frozen") -> dict[str, Any]:
    """A method on the frozen model as it is."""
    with method.attach(lab.model, text=lab.training_sequences(2)) as handle:
        found = lab.attached(handle)
        return {
            "method": f"{name}, {note}" if note else name,
            "trained": 0,
            **plain_cells(lab.full(), found),
            "retained": handle.retained_pairs(),
            **_accuracy(lab, lab.model),
        }


def _paper(values: dict[str, float]) -> dict[str, Any]:
    return {f"paper_{key}": value for key, value in values.items()}


def table1(lab: Lab) -> Report:
    """Retrofitting sparse attention onto a pretrained model."""
    scale, full = lab.scale, lab.full()
    sparse: list[tuple[str, Any]] = [
        ("Longformer", Longformer(window=scale.window)),
        ("Performer", Performer()),
        ("Routing Transformer", RoutingTransformer(window=scale.window, num_clusters=8)),
    ]
    keys = min(SELECTED, scale.seq_len // 4)
    rows = [
        {
            "method": "full attention",
            "trained": 0,
            "ppl": full.perplexity,
            "retained": 1.0,
            **_accuracy(lab, lab.model),
            **_paper(paper.RETROFIT["full attention"]),
        }
    ]
    rows += [{"trained": 0, **row} for row in null_rows(lab)]
    rows += [_attached(lab, name, method) for name, method in sparse]
    rows.append(
        {**_attached(lab, "SparQ", SparQ(num_keys=keys, reallocate=False), ""), **_paper(paper.RETROFIT["SparQ"])}
    )
    rows.append(
        {
            **_attached(lab, "SparQ", SparQ(num_keys=keys, reallocate=True), "mean value"),
            **_paper(paper.RETROFIT["SparQ, mean value"]),
        }
    )
    rows.append({**_attached(lab, "MagicPIG", MagicPIG(window=keys), ""), **_paper(paper.RETROFIT["MagicPIG"])})
    rows += [_tuned(lab, name, method) for name, method in sparse]
    rows.append(_tuned(lab, "full fine-tuning", None))
    rows.append({**_soft_row(lab), **_paper(paper.RETROFIT["Focus, soft gate"])})
    rows += _focus_rows(lab, 4, (1, 2)) + _focus_rows(lab, 8, (1,))
    columns = [
        Column("method", "method"),
        Column("trained", "weights trained", 0),
        *QUALITY,
        *ACCURACY,
        Column("paper_ppl", "perplexity (GPT-2, PG-19)", 1, paper=True),
        *HUB,
    ]
    return Report(
        "table1",
        "Sparse attention retrofitted onto a pretrained model",
        columns,
        rows,
        {
            **lab.base_setting(),
            "window": scale.window,
            "sinks": 4,
            "keys a query (SparQ, MagicPIG)": keys,
            "seeds": scale.seeds,
            "steps": {"centroids": scale.steps, "weights": scale.weight_steps},
            "learning rates": {"centroids": scale.learning_rate, "weights": scale.weight_rate},
        },
        [
            ITEMS_NOTE,
            "The paper's rows for other methods are of fine-tuned weights; here every method is also shown on "
            "the frozen model.",
            "HellaSwag, ARC-E and PIQA need the hub: `focus-explorer evaluate --tasks` runs them "
            "where it can be reached.",
            "Fine-tuning rows are of one seed.",
        ],
        _retrofit_claims(rows),
        _bars(rows),
    )


def _value(row: dict[str, Any], key: str = "ppl") -> float:
    cell = row.get(key)
    return math.nan if cell is None else float(getattr(cell, "value", cell))


def _decided(held: bool, *values: float) -> bool | None:
    """None where a number the claim rests on was not measured."""
    return None if any(map(math.isnan, values)) else held


def _no_loss(base: dict[str, Any], row: dict[str, Any]) -> bool | None:
    """Whether accuracies are no lower than full attention's interval."""
    lows = [_value({"low": getattr(base.get(key), "low", None)}, "low") for key in ("short", "long")]
    found = [_value(row, key) for key in ("short", "long")]
    return _decided(all(value >= low for value, low in zip(found, lows, strict=True)), *lows, *found)


def _accuracies(row: dict[str, Any]) -> str:
    return f"{_value(row, 'short'):.1%} and {_value(row, 'long'):.1%}"


def _retrofit_claims(rows: list[dict[str, Any]]) -> list[Claim]:
    by = {row["method"]: row for row in rows}
    base = by["full attention"]
    full, soft = _value(base), _value(by["Focus, soft gate"])
    one, two = by["Focus K=4, k=1"], by["Focus K=4, k=2"]
    others = {name: _value(by[name]) for name in by if "frozen" in name or name.startswith(("SparQ", "MagicPIG"))}
    best = min(others, key=lambda name: others[name])
    tuned = _value(by["full fine-tuning"])
    return [
        Claim(
            "trained centroids lower the perplexity of the frozen model's domain (36.2 against 42.8, -15 %)",
            soft < full * 0.99,
            f"soft gate {soft / full - 1:+.2%}, k = 2 {_value(two) / full - 1:+.2%}",
        ),
        Claim(
            "Focus beats other sparse attentions on the frozen model",
            _value(two) < others[best],
            f"k = 2 {_value(two):.2f} and k = 1 {_value(one):.2f}, best other {best} {others[best]:.2f}",
        ),
        Claim(
            "Focus beats full fine-tuning in the domain (36.2 against 36.4)",
            soft < tuned,
            f"soft gate {soft:.2f}, full fine-tuning {tuned:.2f}",
        ),
        Claim(
            "zero degradation on benchmarks",
            _no_loss(base, two),
            "last word within the window, where every mask is full attention, and in long passages: full attention "
            f"{_accuracies(base)}, k = 2 {_accuracies(two)}, k = 1 {_accuracies(one)}",
        ),
    ]


def _bars(rows: list[dict[str, Any]]) -> Figure:
    shown = [row for row in rows if _value(row) < 5 * _value(rows[0])]
    return Figure(
        "bar",
        "",
        "perplexity",
        [Series("ours", [r["method"] for r in shown], [_value(r) for r in shown])],
        marks={"full attention": _value(rows[0])},
    )


def _lora(lab: Lab, rank: int, rate: float, evaluate: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """LoRA on the query and value projections, trained, scored and taken off again."""
    network = lab.fresh_model()
    with LoRA(rank=rank, alpha=2.0 * rank).attach(network) as handle:
        parameters = handle.parameters()
        lab.adapt(f"LoRA r={rank} rate {rate:g}", handle.model, parameters, rate, steps=lab.scale.steps)
        return {"trained": sum(p.numel() for p in parameters), "rate": rate, **evaluate(handle.model)}


def table2(lab: Lab) -> Report:
    """Centroids beside LoRA with as many parameters."""
    scale, full = lab.scale, lab.full()
    rate = scale.lora_rates[len(scale.lora_rates) // 2]

    def both(model: Any) -> dict[str, Any]:
        return {**plain_cells(full, score(model, lab.sequences())), **_accuracy(lab, model), "retained": 1.0}

    rows: list[dict[str, Any]] = [
        {"method": "frozen model", "trained": 0, "ppl": full.perplexity, "retained": 1.0, **_accuracy(lab, lab.model)}
    ]
    for rank in (4, 16):
        known = paper.ADAPTATION[f"LoRA r={rank}"]
        rows.append({"method": f"LoRA r={rank}", **_lora(lab, rank, rate, both), **_paper(known)})
    rows.append({**_soft_row(lab), "rate": scale.learning_rate, **_paper(paper.ADAPTATION["centroids"])})
    rows += [{**row, "rate": scale.learning_rate} for row in _focus_rows(lab, 4, (1, 2))]
    columns = [
        Column("method", "method"),
        Column("trained", "weights trained", 0),
        Column("rate", "learning rate", 4),
        *QUALITY,
        *ACCURACY,
        Column("paper_parameters", "weights trained (GPT-2)", 0, paper=True),
        Column("paper_ppl", "perplexity (GPT-2)", 1, paper=True),
    ]
    lora, base = rows[1], rows[0]
    soft, two = rows[3], next(row for row in rows if row["method"] == "Focus K=4, k=2")
    claims = [
        Claim(
            "LoRA lowers perplexity more than centroids do (31.6 against 34.2)",
            _value(lora) < _value(soft),
            f"LoRA r=4 {_value(lora):.2f}, centroids {_value(soft):.2f} under the soft gate, {_value(two):.2f} at "
            f"k = 2, frozen {_value(base):.2f}",
        ),
        Claim(
            "LoRA costs accuracy elsewhere, centroids none",
            _decided(
                _no_loss(base, lora) is False and _no_loss(base, two) is True,
                _value(base, "short"),
                _value(two, "long"),
            ),
            f"last word within the window and in long passages: frozen {_accuracies(base)}, LoRA r=4 "
            f"{_accuracies(lora)}, k = 2 {_accuracies(two)}; the text is of the training's domain: a weak test",
        ),
    ]
    return Report(
        "table2",
        "Centroids beside LoRA on the same data",
        columns,
        rows,
        {
            **lab.base_setting(),
            "steps": scale.steps,
            "LoRA": f"query and value projections, alpha 2r, rate {rate:g}",
            "seeds": {"centroids": scale.seeds, "LoRA": [0]},
            "window": scale.window,
            "sinks": 4,
        },
        [ITEMS_NOTE],
        claims,
        _bars(rows),
    )
