"""Centroid training on a frozen model: only routers get gradients. It knows nothing of the screen or the database."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focus_runtime.calibrate import calibrate_potentials
from focus_runtime.checkpoint import Centroids, random_centroids
from focus_runtime.compose import FocusModel, SoftGate, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import TrainingError
from focus_runtime.mask import allowed_pairs
from focus_runtime.measure import check_positions, dominance, evaluate_focus, evaluate_full, final_hidden, token_nll
from focus_runtime.models import fingerprint, weights_sha256
from focus_runtime.optimise import Loop, Shares, TrainConfig, TrainStep, average, checkpointing
from focus_runtime.sequences import encode_texts, even_sequences

ROWS_COUNTED = 1024  # query rows of which a step counts the kept pairs


def texts_sha256(texts: list[str]) -> str:
    """Hash of the training texts, in order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def train_centroids(
    model: Any,
    tokenizer: Any,
    texts: list[str],
    config: FocusConfig,
    settings: TrainConfig,
    *,
    model_id: str = "",
    on_step: Callable[[TrainStep], None] | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> Centroids:
    """Train routers of a frozen model and estimate their column potentials.

    Args:
        model: causal language model; its weights are not changed (checked by hash).
        texts: training texts.
        config: K, d_g, window, sinks, gate, layers; top_k matters only with `settings.hard`.
        settings: optimisation.
        model_id: recorded in the result.
        on_step: called after every step.
        checkpoint: file in which every `settings.checkpoint_every` steps, and the last one on Ctrl-C, are kept.
        resume: go on from that file; the losses are those of a training that was never interrupted.
        should_stop: asked after every step.

    Returns:
        Centroids with potentials, ready for `save_centroids`.

    Raises:
        TextError: too little text. TrainingError: the checkpoint does not fit, cannot be written, or the loss is no
        number. TrainingStopped: stopped by the user.
    """
    ids = encode_texts(tokenizer, texts, settings.seq_len + 1)
    check_positions(model, settings.seq_len)
    centroids = random_centroids(model, config, seed=settings.seed, name="trained")
    before = weights_sha256(model)
    frozen = [p for p in model.parameters() if p.requires_grad]
    model.requires_grad_(False)
    focus = compose(model, centroids, assignment="sinkhorn")
    started = time.perf_counter()
    try:
        identity = {"config": config.to_json(), "model": fingerprint(model), "texts": texts_sha256(texts)}
        loop = centroid_loop(focus, centroids, ids, settings, identity=identity, checkpoint=checkpoint)
        if resume:
            loop.resume()
        with checkpointing(model, settings.gradient_checkpointing):
            last = loop.run(on_step, should_stop)
    finally:
        focus.detach()
        for router in centroids.routers.values():
            router.requires_grad_(False)
        for parameter in frozen:
            parameter.requires_grad_(True)
    if weights_sha256(model) != before:
        raise TrainingError("training changed the base model's weights", fix="report this; the result was not kept")
    device = next(model.parameters()).device
    calibrate_potentials(
        model, centroids, even_sequences(ids, settings.calibration_sequences, settings.seq_len).to(device)
    )
    centroids.base_model, centroids.base_fingerprint = model_id, fingerprint(model)
    centroids.training = {
        **asdict(settings),
        "final_loss": None if last is None else last.loss,
        "final_dominance": None if last is None else last.dominance,
        "tokens_seen": settings.steps * settings.batch * settings.accumulation * settings.seq_len
        * loop.processes.num_processes,
        "training_tokens": ids.numel(),
        "base_weights_sha256": before,
        "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip
    return centroids


def centroid_loop(
    focus: FocusModel,
    centroids: Centroids,
    ids: Tensor,
    settings: TrainConfig,
    *,
    identity: dict[str, Any] | None = None,
    checkpoint: Path | None = None,
    extra_loss: Callable[[FocusModel], Tensor] | None = None,
    phase: str = "centroids",
) -> Loop:
    """The loop that trains the routers of a composed model whose own weights are frozen.

    Args:
        extra_loss: added to the language model's loss, from what the routers decided in this pass.
    """
    routers = [centroids.routers[index] for index in sorted(centroids.routers)]
    for router in routers:
        router.requires_grad_(True)
    gate = SoftGate(focus.config.gate, settings.steepness, settings.hard)

    def loss(batch: Tensor) -> Tensor:
        found = token_nll(focus.model, final_hidden(focus.model, batch), batch).mean()
        return found if extra_loss is None else found + extra_loss(focus)

    return Loop(
        ids, settings, [p for router in routers for p in (router.projection, router.centroids)], loss,
        after_step=lambda step: update_potentials(focus, centroids, settings.potential_decay, step),
        state={f"potential.{i}": centroids.routers[i].potential for i in sorted(centroids.routers)},
        identity=identity or {}, checkpoint=checkpoint, around_step=lambda: focus.training_gate(gate), phase=phase,
    )  # fmt: skip


@torch.no_grad()
def update_potentials(focus: FocusModel, centroids: Centroids, decay: float, step: int) -> Shares:
    """Running average of Sinkhorn's column terms; returns dominance, mean and largest, and retained pairs."""
    shares, kept = [], []
    for index, assignment in focus.assignments().items():
        router = centroids.routers[index]
        mean = average(assignment.potential.detach().float().mean(dim=0))
        router.potential.copy_(mean if step == 0 else decay * router.potential + (1 - decay) * mean)
        router.has_potential = True
        shares.append(dominance(assignment.probabilities))
        kept.append(retained_pairs(assignment.membership[0], focus.config.window, focus.config.num_sinks))
    return float(np.mean(shares)), max(shares), float(np.mean(kept))


def retained_pairs(membership: Tensor, window: int, num_sinks: int) -> float:
    """Share of causal pairs that the hard mask keeps, (T,) -> float; from 1,024 even query rows of a longer text."""
    length = membership.shape[0]
    count = min(length, ROWS_COUNTED)
    position = torch.arange(length, device=membership.device)
    rows = position if count == length else torch.linspace(0, length - 1, count, device=membership.device).long()
    allowed = allowed_pairs(membership[rows], membership, rows, position, window, num_sinks)
    return allowed.sum().item() / (rows + 1).sum().item()


def validate(
    model: Any, centroids: Centroids, sequences: Tensor, *, top_ks: tuple[int, ...] = (1, 2), window: int | None = None
) -> dict[str, Any]:
    """Held-out perplexity under the hard mask for several k, with balance and sparsity, and of full attention."""
    full, scored = evaluate_full(model, sequences)
    report: dict[str, Any] = {"full": full, "scored_tokens": scored, "sequence_length": sequences.shape[1]}
    for top_k in top_ks:
        focus = compose(model, centroids, top_k=top_k, window=window)
        try:
            report[f"k={top_k}"] = asdict(evaluate_focus(focus, sequences))
        finally:
            focus.detach()
    return report
