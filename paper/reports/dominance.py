"""Table 8 and dominance: what keeps one group from taking every token."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from paper.reports import paper
from paper.reports.lab import Lab
from paper.reports.report import Claim, Column, Figure, Report, Series
from paper.studies.dominance import STRATEGIES, measure_dominance

GROUPS = 8
COLLAPSED, HELD_UP_TO = 0.9, 1.5 / GROUPS  # largest group, share of tokens
RATE = 1e-2  # high, so that what collapses does so within the steps of a scale
LAST = 5  # steps averaged at the end
COLUMNS = [
    Column("mitigation", "mitigation"),
    Column("start", "largest group at the start", 1, percent=True),
    Column("dominance", "at the end", 1, percent=True),
    Column("dominance_max", "worst layer at the end", 1, percent=True),
    Column("dead", "empty groups of 8", 1),
    Column("retained", "pairs kept, k = 1", 1, percent=True),
    Column("loss", "loss, last steps", 3),
    Column("meaning", "definition"),
    Column("paper_outcome", "outcome", paper=True),
]


def table8(lab: Lab) -> Report:
    """Each mitigation from the same routers on the same sequences."""
    settings = lab.plan(
        lab.scale.seeds[0], steps=lab.scale.study_steps, seq_len=lab.scale.study_len, learning_rate=RATE
    )
    config = lab.config(num_groups=GROUPS, window=max(4, lab.scale.study_len // 8))
    every = max(1, settings.steps // 5)

    def report(row: dict[str, Any]) -> None:
        if row["step"] % every == 0:
            lab.log(
                f"{row['strategy']}: step {row['step']} loss {row['loss']:.3f} dominance {row['dominance']:.3f} "
                f"dead groups {row['dead_groups']:.2f}"
            )

    again = max(1, settings.steps // 6)
    strategies = [
        dataclasses.replace(
            strategy, recluster_every=again, meaning=strategy.meaning.replace("every 100 steps", f"every {again} steps")
        )
        if strategy.recluster_every
        else strategy
        for strategy in STRATEGIES.values()
    ]  # a short run would never see the usual 100 steps
    measured = measure_dominance(lab.model, lab.tokenizer, lab.texts, config, settings, strategies, on_row=report)
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in measured:
        curves.setdefault(row["strategy"], []).append(row)
    rows = [_summary(name, curve) for name, curve in curves.items()]
    for row in rows:
        row["meaning"] = next(s.meaning for s in strategies if s.name == row["mitigation"])
    return Report(
        "table8",
        "What keeps groups balanced in training (K = 8, perfect balance 12.5 %)",
        COLUMNS,
        rows,
        {
            **lab.base_setting(),
            "groups": GROUPS,
            "steps": settings.steps,
            "tokens per training sequence": lab.scale.study_len,
            "learning rate": RATE,
            "window": config.window,
            "seeds": lab.scale.seeds[:1],
            "averaged over": f"the last {LAST} steps",
        },
        [
            "Frozen model: hidden states cannot drift, so this shows centroids and projection escaping alone.",
            "The loss of a collapsed strategy is that of nearly full attention: read it beside pairs kept.",
            "A high rate is used so that what collapses does so within these steps; the recipe's rate is lower.",
        ],
        _claims(rows, settings.steps),
        _figure(curves),
        {"curves": curves},
    )


def _claims(rows: list[dict[str, Any]], steps: int) -> list[Claim]:
    by = {row["mitigation"]: row for row in rows}
    soft, held = by["softmax"], by["sinkhorn"]
    return [
        Claim(
            "softmax assignment collapses into one group (99.4 % at the end)",
            True if soft["dominance"] > COLLAPSED else False if soft["dominance"] < HELD_UP_TO else None,
            f"largest group {soft['dominance']:.1%} on average, {soft['dominance_max']:.1%} in the worst layer after "
            f"{steps} steps",
            f"margin: above {COLLAPSED:.0%}; below {HELD_UP_TO:.1%} (1.5 / K) it did not; one seed",
        ),
        Claim(
            "Sinkhorn holds (14.6 % with K = 8)",
            held["dominance"] <= HELD_UP_TO,
            f"largest group {held['dominance']:.1%} on average, {held['dominance_max']:.1%} in the worst layer",
            f"margin: at most {HELD_UP_TO:.1%} (1.5 / K) on average; one seed",
        ),
        Claim(
            "no other mitigation is stable",
            all(row["dominance"] > HELD_UP_TO or row["dead"] >= 1 for row in rows if row["mitigation"] != "sinkhorn"),
            "; ".join(f"{row['mitigation']} {row['dominance']:.1%}" for row in rows),
            f"margin: every other one above {HELD_UP_TO:.1%} (1.5 / K) or with an empty group; one seed",
        ),
    ]


def _summary(name: str, curve: list[dict[str, Any]]) -> dict[str, Any]:
    end = curve[-LAST:]

    def mean(key: str) -> float:
        return float(np.mean([row[key] for row in end]))

    return {
        "mitigation": name,
        "start": curve[0]["dominance"],
        "dominance": mean("dominance"),
        "dominance_max": max(row["dominance_max"] for row in end),
        "dead": mean("dead_groups"),
        "retained": mean("retained_pairs"),
        "loss": mean("loss"),
        "paper_outcome": paper.DOMINANCE.get(name),
    }


def _figure(curves: dict[str, list[dict[str, Any]]]) -> Figure:
    series = [
        Series(name, [row["step"] for row in curve], [100 * row["dominance"] for row in curve])
        for name, curve in curves.items()
    ]
    return Figure(
        "line", "step", "largest group, % of tokens", series, marks={"balance": 100 / GROUPS, "1.5 / K": 150 / GROUPS}
    )


REGIMES = {False: "centroids alone", True: "all weights"}
COMPARED = {"entropy-balance": "softmax and balance loss", "sinkhorn": "Sinkhorn"}
REGIME_COLUMNS = [
    Column("mitigation", "assignment"),
    Column("regime", "trained"),
    Column("dominance", "largest group at the end", 1, percent=True),
    Column("dominance_max", "worst layer at the end", 1, percent=True),
    Column("stability", "tokens that kept their group", 1, percent=True),
    Column("retained", "pairs kept, k = 1", 1, percent=True),
    Column("loss", "loss, last steps", 3),
    Column("paper_dominance", "largest group", 1, paper=True, percent=True),
    Column("paper_stability", "stability", 3, paper=True),
]


def dominance(lab: Lab) -> Report:
    """The largest group and its stability, after training centroids alone and after training all weights."""
    settings = lab.plan(
        lab.scale.seeds[0], steps=lab.scale.study_steps, seq_len=lab.scale.study_len, learning_rate=RATE
    )
    config = lab.config(num_groups=GROUPS, window=max(4, lab.scale.study_len // 8))
    curves: dict[str, list[dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    for weights, regime in REGIMES.items():
        plan = dataclasses.replace(settings, learning_rate=lab.scale.weight_rate) if weights else settings
        made = measure_dominance(
            lab.model,
            lab.tokenizer,
            lab.texts,
            config,
            plan,
            list(COMPARED),
            weights=weights,
            router_rate=RATE,
            probe=lab.sequences(lab.scale.study_len, 1),
        )
        for name, title in COMPARED.items():
            curve = [row for row in made if row["strategy"] == name]
            curves[f"{title}, {regime}"] = curve
            summary = _summary(name, curve)
            lab.log(f"{title}, {regime}: largest group {summary['dominance']:.3f}")
            reported = paper.DOMINANCE_REGIMES[name, weights]
            rows.append(
                {
                    **summary,
                    "mitigation": title,
                    "regime": regime,
                    "stability": curve[-1]["stability"],
                    "paper_dominance": reported["dominance"],
                    "paper_stability": reported["stability"],
                }
            )
    return Report(
        "dominance",
        "Largest group and stability, centroids alone and all weights, K = 8",
        REGIME_COLUMNS,
        rows,
        {
            **lab.base_setting(),
            "groups": GROUPS,
            "steps": settings.steps,
            "tokens per training sequence": lab.scale.study_len,
            "learning rates": {"centroids": RATE, "weights": lab.scale.weight_rate},
            "window": config.window,
            "seeds": lab.scale.seeds[:1],
            "averaged over": f"the last {LAST} steps",
        },
        [
            "Stability: held-out tokens that kept their group over the last tenth of the steps, mean over layers; the "
            "paper does not define its own. Learning rates fall to a tenth by then.",
            "A collapsed assignment is stable: read it beside the largest group.",
        ],
        _regime_claims(rows),
        _figure(curves),
        {"curves": curves},
    )


def _regime_claims(rows: list[dict[str, Any]]) -> list[Claim]:
    by = {(row["mitigation"], row["regime"]): row for row in rows}
    soft = by[COMPARED["entropy-balance"], REGIMES[True]]
    held = by[COMPARED["sinkhorn"], REGIMES[True]]
    share = soft["dominance"]
    return [
        Claim(
            "with all weights trained, softmax and a balance loss end in one group (99.4 %)",
            True if share > COLLAPSED else False if share < HELD_UP_TO else None,
            f"largest group {share:.1%} on average, {soft['dominance_max']:.1%} in the worst layer",
            f"margin: above {COLLAPSED:.0%}; below {HELD_UP_TO:.1%} (1.5 / K) it did not; one seed",
        ),
        Claim(
            "with all weights trained, Sinkhorn holds (15.9 %)",
            held["dominance"] <= HELD_UP_TO,
            f"largest group {held['dominance']:.1%} on average, {held['dominance_max']:.1%} in the worst layer",
            f"margin: at most {HELD_UP_TO:.1%} (1.5 / K) on average; one seed",
        ),
    ]
