"""figure2: what an adaptation gains in its domain against what it loses elsewhere, LoRA and centroids."""

from __future__ import annotations

from typing import Any

from focus_runtime.composition.attach import compose
from paper.reports.adaptation import beyond_window, centroid_size, value_of
from paper.reports.answers import last_words
from paper.reports.cells import quality_cells
from paper.reports.lab import Lab
from paper.reports.lora import lora_row
from paper.reports.report import Claim, Column, Figure, Report, Series, answers_rule

RANKS = (1, 2, 4, 8, 16)
ROUTING_DIM = 16


def figure2(lab: Lab) -> Report:
    """LoRA of five ranks, centroids at d_g = 16 and at full rank."""
    scale = lab.scale
    base = {
        "method": "frozen model",
        "trained": 0,
        "ppl": lab.full().perplexity,
        "retained": 1.0,
        **last_words(lab, lab.model),
    }
    rows = [base, *({"method": f"LoRA r={rank}", "retained": 1.0, **lora_row(lab, rank)} for rank in RANKS)]
    rows += [_centroids(lab, size) for size in (ROUTING_DIM, lab.trained(scale.seeds[0]).hidden_size)]
    for row in rows[1:]:
        row["lost"] = value_of(base, "long") - value_of(row, "long") if base["long"] is not None else None
    lora = [row for row in rows if row["method"].startswith("LoRA")]
    centroids = rows[-2:]
    verdicts = [row["unharmed"] for row in (*lora, *centroids)]
    claims = [
        Claim(
            "LoRA forgets at every rank, centroids at neither size",
            None
            if None in verdicts
            else not any(row["unharmed"] for row in lora) and all(row["unharmed"] for row in centroids),
            "right last words lost in long passages: "
            + ", ".join(f"{row['method']} {_share(row['lost'])}" for row in rows[1:])
            + f"; beyond the window: {beyond_window(rows)}; the passages are of the training's domain: a weak test",
            answers_rule(scale.task_items),
        )
    ]
    return Report(
        "figure2",
        "Gain in the domain against answers lost",
        [
            Column("method", "method"),
            Column("trained", "weights trained", 0),
            Column("ppl", "perplexity"),
            Column("relative", "against the frozen model", percent=True, signed=True),
            Column("retained", "pairs kept", 1, percent=True),
            Column("dominance", "largest group", 1, percent=True),
            Column("short", "last word, within the window", 1, percent=True),
            Column("long", "last word, long passages", 1, percent=True),
            Column("lost", "lost in long passages", 1, percent=True, signed=True),
        ],
        rows,
        {
            **lab.base_setting(),
            "steps": scale.steps,
            "seeds": scale.seeds[:1],
            "passages longer than the window": beyond_window(rows),
        },
        [
            "Perplexity of centroids is under the soft gate they were trained with, as in the paper; answers are given "
            "under the mask at k = 2, as pairs kept are.",
            "The paper's benchmarks need the hub: `focus-explorer evaluate --tasks` runs them where it can be reached.",
        ],
        claims,
        _figure(rows),
    )


def _share(value: float | None) -> str:
    return "not measured" if value is None else f"{value:+.1%}"


def _centroids(lab: Lab, size: int) -> dict[str, Any]:
    centroids = lab.trained(lab.scale.seeds[0], routing_dim=size)
    soft = quality_cells(lab.full(), lab.soft(centroids))
    hard = quality_cells(lab.full(), lab.focus(centroids, top_k=2))
    focus = compose(lab.model, centroids, top_k=2)
    try:
        answers = last_words(lab, focus)
    finally:
        focus.detach()
    return {
        "method": f"centroids, d_g = {size}",
        "trained": centroid_size(centroids),
        "ppl": soft["ppl"],
        "relative": soft["relative"],
        "retained": hard["retained"],
        "dominance": hard["dominance"],
        **answers,
    }


def _figure(rows: list[dict[str, Any]]) -> Figure | None:
    if rows[0]["long"] is None:
        return None
    series = []
    for name in ("LoRA", "centroids"):
        chosen = sorted((row for row in rows if row["method"].startswith(name)), key=lambda row: row["trained"])
        series.append(
            Series(name, [-100 * row["relative"].value for row in chosen], [100 * row["lost"] for row in chosen])
        )
    return Figure("line", "perplexity gained in the domain, %", "last words lost, points", series, marks={"none": 0.0})
