"""What a centroid file records of the training that made it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from focus_runtime.config import FocusConfig
from focus_runtime.fit.loop import Loop
from focus_runtime.fit.settings import TrainConfig, TrainStep
from focus_runtime.routing.centroids import Centroids
from focus_runtime.text.sequences import Mixture, TokenStream, recorded_special_tokens


def training_summary(
    loop: Loop, settings: TrainConfig, config: FocusConfig, initial: Centroids | None
) -> dict[str, Any]:
    """What a centroid file records of its training: of the step whose centroids it holds.

    Args:
        loop: of the training, at its end.
        settings: of the training.
        config: of the trained centroids.
        initial: what it started from; None for random centroids.
    """
    validation, kept = loop.validation, loop.done
    if validation is not None and validation.plan.patience and validation.best is not None:
        kept = validation.best.step
    last = loop.history[kept - 1] if 0 < kept <= len(loop.history) else loop.last
    sequences = kept * settings.batch * settings.accumulation * loop.processes.num_processes
    summary: dict[str, Any] = {
        **recorded_settings(settings, loop.ids),
        "steps": kept,
        "planned_steps": settings.steps,
        "stopped": loop.stop_reason,
        **final_step(last),
        "tokens_seen": sequences * settings.seq_len,
        "training_tokens": loop.ids.numel(),
    }
    if isinstance(loop.ids, Mixture):
        parts = zip(loop.ids.names, loop.ids.weights, loop.ids.streams, strict=True)
        summary["domains"] = [{"name": n, "weight": w, "tokens": stream.numel()} for n, w, stream in parts]
    if validation is not None:
        summary["evaluations"] = [asdict(one) | {"mean": one.mean} for one in validation.history]
        summary["validation_every"], summary["patience"] = validation.plan.every, validation.plan.patience
    if initial is not None:
        summary["initial"] = {"name": initial.name, "sha256": initial.sha256}
        if settings.learn == "factors":
            summary |= _of_groups(initial, keeps_budget=config.budget == initial.config.budget)
    return summary


def recorded_settings(settings: TrainConfig, texts: TokenStream | Mixture) -> dict[str, Any]:
    """The settings of a training; of special tokens only where the tokenizer adds some."""
    values = asdict(settings)
    del values["special_tokens"]
    return values | recorded_special_tokens(texts)


def _of_groups(initial: Centroids, *, keeps_budget: bool) -> dict[str, Any]:
    """What a file with factors records of its groups, which another training made: that training and its budgets."""
    record = dict(initial.training)
    searched = record.pop("budget", None)
    balanced = record.pop("balanced", None)
    kept: dict[str, Any] = {"groups_training": record.get("groups_training", record)}
    if balanced is not None:
        kept["balanced"] = balanced
    if keeps_budget and isinstance(searched, dict):
        kept["budget"] = searched | {"before_factors": True}  # the same groups and budget, but other logits
    return kept


def final_step(step: TrainStep | None) -> dict[str, float | None]:
    """What a file records of the step whose centroids it holds; parts that were not measured are left out."""
    if step is None:
        return {"final_loss": None, "final_dominance": None}
    parts = {"final_loss": step.loss, "final_divergence": step.divergence, "final_layer_error": step.layer_error}
    measured: dict[str, float | None] = {name: value for name, value in parts.items() if not math.isnan(value)}
    return measured | {"final_dominance": step.dominance}
