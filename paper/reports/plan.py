"""What a reproduction would train and measure, what of it is on disk, and how long the rest takes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from focus_runtime.fit.centroids import train_centroids
from focus_runtime.fit.settings import TrainStep
from paper.reports.lab import Lab
from paper.reports.names import REPORTS
from paper.reports.render import kept_key

LIKE = {"figure3": "from-scratch"}  # reports that measure what another one does


class Training(NamedTuple):
    """Arguments of one `Lab.trained`."""

    seed: int
    plan: dict[str, Any]
    config: dict[str, Any]


def centroid_trainings(name: str, lab: Lab) -> list[Training]:
    """The trained centroids that a report looks up under the laboratory's recipe; several reports share some."""
    seeds, first = lab.scale.seeds, lab.scale.seeds[:1]

    def each(chosen: Iterable[int], **config: Any) -> list[Training]:
        return [Training(seed, {}, config) for seed in chosen]

    def both(chosen: Iterable[int]) -> list[Training]:
        return [*each(chosen, num_groups=4), *each(chosen, num_groups=8)]

    made: dict[str, Callable[[], list[Training]]] = {
        "table1": lambda: [*each(seeds), *both(seeds)],
        "table3": lambda: [*each(seeds), *each(seeds, num_groups=4)],
        "table4": lambda: each(first, num_groups=4),
        "gsm8k": lambda: each(first, num_groups=4),
        "table7": lambda: both(seeds),
        "table9": lambda: _swept(lab),
        "routing-size": lambda: _sized(lab),
        "long-context": lambda: both(first),
        "groups": lambda: each(first, num_groups=8),
        "sinks": lambda: [*each(first, num_groups=4, num_sinks=0), *each(first, num_groups=4, num_sinks=4)],
        "gate": lambda: _gates(lab),
        "figure2": lambda: _full_rank(lab),
    }
    like = {"table10": "table1", "pairs-kept": "table7", "pairs": "groups", "layers": "groups"}
    like |= dict.fromkeys(("mass", "leak", "balance"), "long-context")
    return made.get(like.get(name, name), list)()


def _swept(lab: Lab) -> list[Training]:
    from paper.reports.ablation import swept_values

    steps = {"steps": lab.scale.sweep_steps}
    return [Training(lab.scale.seeds[0], steps, {name: value}) for name, value in swept_values(lab)]


def _sized(lab: Lab) -> list[Training]:
    from paper.reports.ablation import GROUPS, ROUTING_DIMS

    seed, steps = lab.scale.seeds[0], {"steps": lab.scale.sweep_steps}
    sized = [Training(seed, steps, {"num_groups": GROUPS, "routing_dim": size}) for size in ROUTING_DIMS]
    return [Training(seed, {}, {"num_groups": GROUPS}), *sized]


def _full_rank(lab: Lab) -> list[Training]:
    from paper.reports.forgetting import ROUTING_DIM

    seed, width = lab.scale.seeds[0], lab.model.config.get_text_config().hidden_size
    return [Training(seed, {}, {}), *(Training(seed, {}, {"routing_dim": size}) for size in (ROUTING_DIM, width))]


def _gates(lab: Lab) -> list[Training]:
    from paper.reports.gate import trainings

    return [Training(lab.scale.seeds[0], plan, {"gate": kind}) for _, _, kind, plan in trainings(lab)]


def other_steps(name: str, lab: Lab) -> int:
    """Optimiser steps, under one recipe, of a report's trainings that change weights or compare ways to train."""
    scale, seeds = lab.scale, len(lab.scale.seeds)
    steps = {
        "table1": 4 * scale.weight_steps,
        "table2": 6 * scale.steps + 5 * scale.scratch_steps,
        "table3": 2 * scale.steps,
        "table4": len(scale.lora_rates) * scale.steps,
        "table5": scale.steps + scale.weight_steps + seeds * scale.scratch_steps,
        "table8": 7 * scale.study_steps,
        "dominance": 4 * scale.study_steps,
        "devices": 7 * scale.sweep_steps,
        "gate": 4 * scale.gate_steps,
        "figure1": 4 * scale.weight_steps + scale.steps + scale.weight_steps,
        "figure2": 5 * scale.steps,
        "from-scratch": scale.curve_steps,
        "domains": max(1, len(lab.domains)) * (scale.steps + scale.weight_steps),
    }
    return steps.get(LIKE.get(name, name), 0)


def twin_steps(name: str, lab: Lab) -> int:
    """Those with full attention, which no recipe changes, so that they are trained once."""
    scale = lab.scale
    steps = {
        "table5": scale.weight_steps + len(scale.seeds) * scale.scratch_steps,
        "figure1": scale.weight_steps,
        "from-scratch": scale.curve_steps,
        "domains": max(1, len(lab.domains)) * scale.weight_steps,
    }
    return steps.get(LIKE.get(name, name), 0)


def seconds_of_a_step(lab: Lab) -> float:
    """One training step of centroids on this machine: the second of two, the first warms up."""
    speeds: list[float] = []

    def on_step(step: TrainStep) -> None:
        speeds.append(step.tokens_per_second)

    settings = lab.plan(steps=2, calibration_sequences=1)
    train_centroids(
        lab.model, lab.tokenizer, lab.texts, lab.config(), settings, model_id=lab.model_name, on_step=on_step
    )
    return lab.scale.seq_len * lab.scale.batch / speeds[-1]


def plan_text(lab: Lab, out: Path, keys: dict[str, str], recipes: dict[str, list[str]]) -> str:
    """The plan in lines: a report each, then what is left of all together.

    Args:
        lab: model, texts and folder.
        out: where reports are written.
        keys: report -> its key.
        recipes: report -> those it is measured under.
    """
    second = seconds_of_a_step(lab)
    planned: set[Path] = set()
    lines, total = [], 0.0
    for name, key in keys.items():
        if kept_key(out, name) == key:
            lines.append(f"{name:16} written")
            continue
        steps, made, kept = other_steps(name, lab) * len(recipes[name]) + twin_steps(name, lab), 0, 0
        for recipe in recipes[name]:
            other = lab.under(recipe)
            for training in centroid_trainings(name, other):
                settings, _, file = other.training(training.seed, training.plan, **training.config)
                made += 1
                if file.exists() or file in planned:
                    kept += 1
                else:
                    planned.add(file)
                    steps += settings.steps
        total += steps * second
        lines.append(
            f"{name:16} under {' and '.join(recipes[name]):14} {made} trained centroids, {kept} kept or shared; "
            f"{steps:,} steps, {duration(steps * second)}: {REPORTS[name][1]}"
        )
    lines.append(
        f"a step of {lab.scale.seq_len:,} tokens takes {second:.2f} s here; trainings that are left take "
        f"{duration(total)}, scoring and timing come on top"
    )
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """In hours and minutes."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
