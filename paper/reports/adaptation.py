"""Table 1: Focus compared with other sparse attentions: perplexity and answers."""

from __future__ import annotations

import math
from typing import Any

from focus_runtime.composition.attach import compose
from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.perplexity import score
from paper.methods import FullFinetune, Longformer, MagicPIG, Performer, RoutingTransformer, SparQ
from paper.reports import paper
from paper.reports.answers import ITEMS_NOTE, OF_PAPER, answer_columns, answers
from paper.reports.cells import plain_cells, quality_cells
from paper.reports.lab import Lab
from paper.reports.quality import QUALITY, null_rows
from paper.reports.report import Claim, Column, Figure, Report, Series, answers_rule, judged

APART = "margin: both intervals against full attention lie apart; where they overlap it is not decided"
ALIKE = 0.05  # difference in the share of pairs kept up to which two methods count as keeping as many
SELECTED = 32  # keys a query reads under SparQ and the window of MagicPIG, as in the paper
KEYS = Column("keys", "keys a query", 1)


def focus_rows(lab: Lab, groups: int, top_ks: tuple[int, ...]) -> list[dict[str, Any]]:
    """Focus with trained centroids of so many groups under the hard mask, a row for each k."""
    full, trained = lab.full(), [lab.trained(seed, num_groups=groups) for seed in lab.scale.seeds]
    rows = []
    for top_k in top_ks:
        cells = quality_cells(full, [lab.focus(centroids, top_k=top_k) for centroids in trained])
        focus = compose(lab.model, trained[0], top_k=top_k)
        try:
            rows.append(
                {
                    "method": f"Focus K={groups}, k={top_k}",
                    "trained": centroid_size(trained[0]),
                    **cells,
                    **answers(lab, focus),
                }
            )
        finally:
            focus.detach()
    return rows


def centroid_size(centroids: Any) -> int:
    """Weights of all routers."""
    return sum(p.numel() for router in centroids.routers.values() for p in router.parameters())


def soft_row(lab: Lab) -> dict[str, Any]:
    """Focus under the soft gate that centroids are trained with: every pair is computed, nothing is sparse."""
    trained = [lab.trained(seed) for seed in lab.scale.seeds]
    return {
        "method": "Focus, soft gate",
        "trained": centroid_size(trained[0]),
        **quality_cells(lab.full(), [lab.soft(centroids) for centroids in trained]),
        "retained": 1.0,
        "distant": 1.0,
    }


def tuned_row(lab: Lab, name: str, method: Any | None) -> dict[str, Any]:
    """A method fine-tuned with all weights on the same data, then compared in fp32 with full attention in fp32."""
    scale = lab.scale
    settings = {"steps": scale.weight_steps, "rate": scale.weight_rate, "items": scale.task_items}
    return lab.kept(f"{name}, fine-tuned", lambda: _measured_tuned(lab, name, method), method=repr(method), **settings)


def _measured_tuned(lab: Lab, name: str, method: Any | None) -> dict[str, Any]:
    network = lab.fresh_model()
    handle = None if method is None else method.attach(network, text=lab.training_sequences(2))
    weights = FullFinetune().attach(network)
    lab.adapt(f"{name}, all weights", network, weights.parameters(), lab.scale.weight_rate, handle=handle, settle=False)
    scores = score(network, lab.sequences())
    lab.log(f"{name}, fine-tuned: perplexity {scores.perplexity:.3f}")
    row = {
        "method": f"{name}, fine-tuned" if method is not None else name,
        "trained": sum(p.numel() for p in weights.parameters()),
        **plain_cells(lab.precise_full(), scores),
        "retained": 1.0 if handle is None else handle.retained_pairs(),
        **answers(lab, network),
        **of_paper(paper.RETROFIT.get(name, {})),
    }
    if handle is not None:
        handle.detach()
    return row


def _attached(lab: Lab, name: str, method: Any, note: str = "frozen") -> dict[str, Any]:
    """A method on the frozen model as it is."""
    settings = {"method": repr(method), "items": lab.scale.task_items}
    return lab.kept(f"{name}, {note}", lambda: _measured_attached(lab, name, method, note), **settings)


def _measured_attached(lab: Lab, name: str, method: Any, note: str) -> dict[str, Any]:
    with method.attach(lab.model, text=lab.training_sequences(2)) as handle:
        scores = lab.attached(handle)
        return {
            "method": f"{name}, {note}" if note else name,
            "trained": 0,
            **plain_cells(lab.full(), scores),
            "retained": handle.retained_pairs(),
            **answers(lab, lab.model),
        }


def of_paper(values: dict[str, float]) -> dict[str, Any]:
    """The paper's numbers as cells of a row."""
    return {f"paper_{key}": value for key, value in values.items()}


def sparse_methods(lab: Lab) -> list[tuple[str, Any]]:
    """Methods of table 1 that are fine-tuned."""
    return [
        ("Longformer", Longformer(window=lab.scale.window)),
        ("Performer", Performer()),
        (
            "Routing Transformer",
            RoutingTransformer(window=lab.scale.window, num_clusters=8, num_sinks=lab.recipe.num_sinks),
        ),
    ]


def _retrofit_rows(lab: Lab, keys: int) -> list[dict[str, Any]]:
    """Methods on the frozen model, then with trained weights, then Focus; `keys` as in `selecting_rows`."""
    sparse = sparse_methods(lab)
    rows = [full_row(lab)]
    rows += [{"trained": 0, **row} for row in null_rows(lab)]
    rows += [_attached(lab, name, method) for name, method in sparse]
    rows += selecting_rows(lab, keys)
    rows += [tuned_row(lab, name, method) for name, method in sparse]
    rows.append(tuned_row(lab, "full fine-tuning", None))
    return rows + own_rows(lab)


def full_row(lab: Lab) -> dict[str, Any]:
    """The model as it is."""
    return {
        "method": "full attention",
        "trained": 0,
        "ppl": lab.full().perplexity,
        "retained": 1.0,
        **answers(lab, lab.model),
        **of_paper(paper.RETROFIT["full attention"]),
    }


def own_rows(lab: Lab) -> list[dict[str, Any]]:
    """Focus under the soft gate, then under the hard mask at several K and k."""
    soft = {**soft_row(lab), **of_paper(paper.RETROFIT["Focus, soft gate"])}
    return [soft, *focus_rows(lab, 4, (1, 2)), *focus_rows(lab, 8, (1,))]


def selected_keys(lab: Lab) -> int:
    """Keys a query reads under SparQ, and the window of MagicPIG; of short sequences a quarter."""
    return min(SELECTED, lab.scale.seq_len // 4)


def selecting_rows(lab: Lab, keys: int) -> list[dict[str, Any]]:
    """Methods that choose keys for every query, on the frozen model, each with the keys a query read.

    Args:
        lab: model, texts and scale.
        keys: that SparQ reads a query; the window of MagicPIG, which reads sinks and the keys it draws besides.
    """
    rows = [
        {**_attached(lab, "SparQ", SparQ(num_keys=keys, reallocate=False), ""), **of_paper(paper.RETROFIT["SparQ"])},
        {
            **_attached(lab, "SparQ", SparQ(num_keys=keys, reallocate=True), "mean value"),
            **of_paper(paper.RETROFIT["SparQ, mean value"]),
        },
        {**_attached(lab, "MagicPIG", MagicPIG(window=keys), ""), **of_paper(paper.RETROFIT["MagicPIG"])},
    ]
    return [{**row, KEYS.key: keys_per_query(row, lab.scale.seq_len)} for row in rows]


def keys_per_query(row: dict[str, Any], length: int) -> float:
    """Mean number of keys a query of the scored sequences read, from the pairs kept; also of rows kept on disk."""
    return value_of(row, "retained") * (length + 1) / 2


def selecting_setting(keys: int) -> dict[str, str]:
    """What SparQ and MagicPIG are set to, in words; the keys that a query read stand in their rows."""
    always = f"window {keys} and {MagicPIG().num_sinks} sinks, always read, and the keys it draws"
    return {"SparQ": f"{keys} where there are so many", "MagicPIG": always}


def table1(lab: Lab) -> Report:
    """Retrofitting sparse attention onto a pretrained model; measured once for it and table 10."""
    return lab.once("table1", _table1)


def _table1(lab: Lab) -> Report:
    scale = lab.scale
    keys = selected_keys(lab)
    rows = _retrofit_rows(lab, keys)
    columns = [
        Column("method", "method"),
        Column("trained", "weights trained", 0),
        *QUALITY,
        KEYS,
        *answer_columns(lab),
        Column("paper_ppl", "perplexity (GPT-2, PG-19)", 1, paper=True),
        *OF_PAPER,
    ]
    return Report(
        "table1",
        "Sparse attention retrofitted onto a pretrained model",
        columns,
        rows,
        {
            **lab.base_setting(),
            "keys a query (SparQ, MagicPIG)": selecting_setting(keys),
            "seeds": scale.seeds,
            "steps": {"centroids": scale.steps, "weights": scale.weight_steps},
            "passages longer than the window": beyond_window(rows),
            "learning rates": {"centroids": scale.learning_rate, "weights": scale.weight_rate},
        },
        [
            ITEMS_NOTE,
            "The paper's rows for other methods are of fine-tuned weights; here every method is also shown on "
            "the frozen model.",
            "HellaSwag, ARC-E and PIQA need the hub: `focus-explorer evaluate --tasks` runs them "
            "where it can be reached.",
            "Fine-tuning rows are of one seed, scored in fp32 and compared with full attention in fp32.",
        ],
        _retrofit_claims(rows, scale),
        perplexity_bars(rows),
    )


def value_of(row: dict[str, Any], key: str = "ppl") -> float:
    """A cell as a number; NaN where it was not measured."""
    cell = row.get(key)
    return math.nan if cell is None else float(getattr(cell, "value", cell))


def both_accuracies(row: dict[str, Any]) -> str:
    return (
        "not measured" if row.get("long") is None else f"{value_of(row, 'short'):.1%} and {value_of(row, 'long'):.1%}"
    )


def beyond_window(rows: list[dict[str, Any]]) -> str:
    """How many passages of the accuracies are longer than the window, in words."""
    share = rows[0].get("beyond")
    return "not measured" if share is None else f"none of the short passages, {share:.0%} of the long ones"


def _sparse_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Other sparse attentions on the frozen model, with nothing tuned."""
    return [row for row in rows if "frozen" in row["method"] or row["method"].startswith(("SparQ", "MagicPIG"))]


def lies_below(one: Interval, other: Interval) -> bool | None:
    """Whether one lies below the other; None where their intervals overlap."""
    if None in (one.low, one.high, other.low, other.high):
        return None
    if one.high < other.low:  # type: ignore[operator]  # no end is None here
        return True
    return False if other.high < one.low else None  # type: ignore[operator]


def _compared_with_others(rows: list[dict[str, Any]], focus: dict[str, Any]) -> Claim:
    """Focus compared with the best other method that leaves out pairs and keeps about as many as it does.

    A method that keeps fewer may do worse for that reason alone; Performer leaves out none, it approximates all.
    """
    kept = value_of(focus, "retained")
    others = sorted(_sparse_rows(rows), key=value_of)
    rivals = [row for row in others if abs(value_of(row, "retained") - kept) <= ALIKE]
    listed = ", ".join(f"{row['method']} {value_of(row):.2f} at {value_of(row, 'retained'):.0%}" for row in others)
    evidence = f"{focus['method']} {value_of(focus):.2f} at {kept:.0%} of pairs; {listed}"
    verdict = lies_below(focus["relative"], rivals[0]["relative"]) if rivals else None
    if verdict is None:
        evidence += f"; intervals overlap with {rivals[0]['method']}" if rivals else "; none keeps as many pairs"
    text = f"Focus beats other sparse attentions on the frozen model ({focus['method']})"
    return Claim(text, verdict, evidence, f"{APART}; of those that keep as many pairs within {ALIKE:.0%}")


def _retrofit_claims(rows: list[dict[str, Any]], scale: Any) -> list[Claim]:
    by = {row["method"]: row for row in rows}
    base, soft, tuned = by["full attention"], by["Focus, soft gate"], by["full fine-tuning"]
    one, two = by["Focus K=4, k=1"], by["Focus K=4, k=2"]
    same = scale.steps == scale.weight_steps
    return [
        judged(
            "trained centroids lower the perplexity of the frozen model's domain (36.2 against 42.8, -15 %)",
            soft["relative"],
            below=0.0,
            evidence=f"soft gate; under the mask at k = 2 {two['relative'].value:+.2%}",
        ),
        _compared_with_others(rows, two),
        _compared_with_others(rows, by["Focus K=8, k=1"]),
        Claim(
            "Focus beats full fine-tuning in the domain (36.2 against 36.4)",
            lies_below(soft["relative"], tuned["relative"]) if same else None,
            f"soft gate {value_of(soft):.2f} after {scale.steps} steps, full fine-tuning {value_of(tuned):.2f} after "
            f"{scale.weight_steps}",
            f"{APART}; decided only where both trained for as many steps",
        ),
        Claim(
            "zero degradation on benchmarks",
            two["unharmed"],
            "last word within the window, where every mask is full attention, and in long passages: full attention "
            f"{both_accuracies(base)}, k = 2 {both_accuracies(two)}, k = 1 {both_accuracies(one)}; beyond the window: "
            f"{beyond_window(rows)}",
            answers_rule(scale.task_items),
        ),
    ]


def perplexity_bars(rows: list[dict[str, Any]]) -> Figure:
    """Bars of perplexity, without those far beyond full attention's."""
    shown = [row for row in rows if value_of(row) < 5 * value_of(rows[0])]
    return Figure(
        "bar",
        "",
        "perplexity",
        [Series("ours", [r["method"] for r in shown], [value_of(r) for r in shown])],
        marks={"full attention": value_of(rows[0])},
    )
