"""Table 8: mitigations against one group that takes every token, with frozen weights (escape paths A and C)."""

import dataclasses
from typing import Any

import numpy as np

from focus_runtime.config import FocusConfig
from focus_runtime.fit.settings import TrainConfig
from paper.lab.balancing import MITIGATIONS, Strategy, StrategyTraining
from paper.lab.lab import Lab
from paper.output.report import Column, Figure, Report, Row, Series
from paper.reported import REPORTED
from paper.verdicts import EVEN, judge

GROUPS = 8
RATE = 1e-2  # high, so that what collapses does so within the steps of a scale
LAST = 5  # steps averaged at the end


def table8(lab: Lab) -> Report:
    config, settings = study(lab)
    again = max(1, settings.steps // 6)  # a short run would never see the usual 100 steps
    strategies = []
    for strategy in MITIGATIONS.values():
        if strategy.recluster_every:
            meaning = strategy.meaning.replace("every 100 steps", f"every {again} steps")
            strategy = dataclasses.replace(strategy, recluster_every=again, meaning=meaning)
        strategies.append(strategy)
    curves = {strategy.name: curve(lab, strategy, lab.model, config, settings) for strategy in strategies}
    rows = [
        {
            "mitigation": strategy.name,
            "start": curves[strategy.name][0]["dominance"],
            **at_the_end(curves[strategy.name]),
            "meaning": strategy.meaning,
            "paper_outcome": REPORTED["dominance"][strategy.name],
        }
        for strategy in strategies
    ]
    by = {row["mitigation"]: row for row in rows}
    soft, held = by["softmax"], by["sinkhorn"]
    unstable = [row["dominance"] > EVEN or row["dead"] >= 1 for row in rows if row["mitigation"] != "sinkhorn"]
    return Report(
        [
            Column("mitigation", "mitigation"),
            Column("start", "largest group at the start", 1, percent=True),
            Column("dominance", "at the end", 1, percent=True),
            Column("dominance_max", "worst layer at the end", 1, percent=True),
            Column("dead", "empty groups of 8", 1),
            Column("retained", "pairs kept, k = 1", 1, percent=True),
            Column("loss", "loss, last steps", 3),
            Column("meaning", "definition"),
            Column("paper_outcome", "outcome", paper=True),
        ],
        rows,
        study_setting(lab, config, settings, learning_rate=RATE),
        [
            "Frozen model: hidden states cannot drift, so this shows centroids and projection escaping alone.",
            "The loss of a collapsed strategy is that of nearly full attention: read it beside pairs kept.",
            "A high rate is used so that what collapses does so within these steps; the recipe's rate is lower.",
        ],
        [
            judge("table8 softmax", soft["dominance"], f"{largest(soft)} after {settings.steps} steps"),
            judge("table8 Sinkhorn", held["dominance"], largest(held)),
            judge(
                "table8 others", all(unstable), "; ".join(f"{row['mitigation']} {row['dominance']:.1%}" for row in rows)
            ),
        ],
        dominance_figure(curves),
        {"curves": curves},
    )


def study(lab: Lab) -> tuple[FocusConfig, TrainConfig]:
    """Configuration and settings of every training of the study, which `dominance` shares."""
    scale = lab.scale
    settings = lab.plan(lab.seed, steps=scale.study_steps, seq_len=scale.study_len, learning_rate=RATE)
    return lab.config(num_groups=GROUPS, window=max(4, scale.study_len // 8)), settings


def study_setting(lab: Lab, config: FocusConfig, settings: TrainConfig, **more: Any) -> dict[str, Any]:
    """The setting of a report of the study."""
    return lab.setting(
        groups=GROUPS,
        steps=settings.steps,
        tokens_per_training_sequence=lab.scale.study_len,
        window=config.window,
        averaged_over=f"the last {LAST} steps",
        **more,
    )


def curve(
    lab: Lab, strategy: Strategy, network: Any, config: FocusConfig, settings: TrainConfig, **more: Any
) -> list[Row]:
    """The rows of one strategy's training, five of which are logged."""
    every = max(1, settings.steps // 5)

    def report(row: Row) -> None:
        if row["step"] % every == 0:
            lab.log(
                f"{strategy.name}: step {row['step']} loss {row['loss']:.3f} largest group {row['dominance']:.3f} "
                f"dead groups {row['dead_groups']:.2f}"
            )

    training = StrategyTraining(network, strategy, config, settings, on_row=report, **more)
    training.run(lab.train_ids)
    return training.rows


def at_the_end(rows: list[Row]) -> Row:
    """Means over a training's last steps."""
    end = rows[-LAST:]
    names = {"dominance": "dominance", "dead": "dead_groups", "retained": "retained_pairs", "loss": "loss"}
    means = {key: float(np.mean([row[name] for row in end])) for key, name in names.items()}
    return means | {"dominance_max": max(row["dominance_max"] for row in end)}


def largest(row: Row) -> str:
    """The largest group at the end, in words."""
    return f"largest group {row['dominance']:.1%} on average, {row['dominance_max']:.1%} in the worst layer"


def dominance_figure(curves: dict[str, list[Row]]) -> Figure:
    """The largest group by step."""
    series = [
        Series(name, [row["step"] for row in rows], [100 * row["dominance"] for row in rows])
        for name, rows in curves.items()
    ]
    marks = {"balance": 100 / GROUPS, "1.5 / K": 150 / GROUPS}
    return Figure("line", "step", "largest group, % of tokens", series, marks=marks)
