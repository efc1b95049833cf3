"""Centroid training on a frozen model: only routers get gradients. It knows nothing of the screen or the database."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from focus_runtime.calibrate import calibrate_potentials
from focus_runtime.checkpoint import Centroids, random_centroids
from focus_runtime.compose import SoftGate, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TextError
from focus_runtime.measure import dominance, evaluate_focus, evaluate_full, final_hidden, token_nll
from focus_runtime.models import fingerprint, weights_sha256


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How centroids are trained; what is trained stands in FocusConfig.

    Attributes:
        steps: optimiser steps.
        seq_len: tokens per sequence.
        batch: sequences per step.
        learning_rate: peak of AdamW's rate.
        warmup: steps of linear warm-up; then cosine to a tenth of the peak.
        steepness: lambda of the paper gate.
        hard: train on the hard mask with straight-through gradients (log gate only).
        potential_decay: factor of the running average of Sinkhorn's column terms.
        calibration_sequences: training sequences on which the final potentials are estimated.
        seed: initialisation and data order.
    """

    steps: int = 300
    seq_len: int = 512
    batch: int = 1
    learning_rate: float = 3e-3
    warmup: int = 20
    steepness: float = 8.0
    hard: bool = False
    potential_decay: float = 0.95
    calibration_sequences: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        minima = {"steps": 1, "seq_len": 16, "batch": 1, "warmup": 0, "calibration_sequences": 1}
        for name, minimum in minima.items():
            if getattr(self, name) < minimum:
                raise ConfigError(f"{name} is {getattr(self, name)}", expected=f"at least {minimum}")
        if not 0 < self.learning_rate < 10:
            raise ConfigError(f"learning_rate is {self.learning_rate}", expected="between 0 and 10")


@dataclass(frozen=True, slots=True)
class TrainStep:
    """What one step reported: loss in nats per token, mean dominance over layers, tokens per second."""

    step: int
    loss: float
    dominance: float
    learning_rate: float
    tokens_per_second: float


def encode_texts(tokenizer: Any, texts: list[str], minimum: int) -> Tensor:
    """Concatenate texts into one (N,) stream of token ids.

    Raises:
        TextError: fewer than `minimum` tokens.
    """
    parts = [torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False).input_ids) for text in texts]
    ids = torch.cat(parts) if parts else torch.empty(0)
    if ids.numel() < minimum:
        raise TextError(
            f"the text has {ids.numel()} tokens",
            expected=f"at least {minimum}",
            fix="give more text or a shorter --seq-len",
        )
    return ids.long()


def random_sequences(ids: Tensor, count: int, length: int, generator: torch.Generator) -> Tensor:
    """(count, length) windows at random places of a token stream."""
    starts = torch.randint(0, ids.numel() - length + 1, (count,), generator=generator)
    return torch.stack([ids[s : s + length] for s in starts.tolist()])


def even_sequences(ids: Tensor, count: int, length: int) -> Tensor:
    """(count, length) windows spread evenly over a token stream; fewer when it is short, never overlapping."""
    count = max(1, min(count, ids.numel() // length))
    starts = [round(i * (ids.numel() - length) / max(1, count - 1)) for i in range(count)]
    return torch.stack([ids[s : s + length] for s in starts])


def _rate(step: int, config: TrainConfig) -> float:
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


def train_centroids(
    model: Any,
    tokenizer: Any,
    texts: list[str],
    config: FocusConfig,
    settings: TrainConfig,
    *,
    model_id: str = "",
    on_step: Callable[[TrainStep], None] | None = None,
) -> Centroids:
    """Train routers for every layer of a frozen model and estimate their column potentials.

    Args:
        model: causal language model; its weights are not changed (checked by hash).
        texts: training texts.
        config: K, d_g, window, sinks, gate; top_k matters only with `settings.hard`.
        settings: optimisation.
        model_id: recorded in the result.
        on_step: called after every step.

    Returns:
        Centroids with potentials, ready for `save_centroids`.
    """
    ids = encode_texts(tokenizer, texts, settings.seq_len + 1)
    generator = torch.Generator().manual_seed(settings.seed)
    centroids = random_centroids(model, config, seed=settings.seed, name="trained")
    for router in centroids.routers.values():
        router.requires_grad_(True)
    before = weights_sha256(model)
    model.requires_grad_(False)
    parameters = [p for router in centroids.routers.values() for p in router.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.0)
    focus = compose(model, centroids, assignment="sinkhorn")
    started, last = time.perf_counter(), TrainStep(0, math.nan, math.nan, 0.0, 0.0)
    try:
        for step in range(settings.steps):
            clock = time.perf_counter()
            rate = _rate(step, settings)
            for group in optimiser.param_groups:
                group["lr"] = rate
            batch = random_sequences(ids, settings.batch, settings.seq_len, generator)
            with focus.training_gate(SoftGate(config.gate, settings.steepness, settings.hard)):
                loss = token_nll(model, final_hidden(model, batch), batch).mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            share = _update_potentials(focus, centroids, settings.potential_decay, step)
            speed = batch.numel() / (time.perf_counter() - clock)
            last = TrainStep(step + 1, loss.item(), share, rate, speed)
            if on_step is not None:
                on_step(last)
    finally:
        focus.detach()
        for router in centroids.routers.values():
            router.requires_grad_(False)
    assert weights_sha256(model) == before, "training changed the base model"
    length = settings.seq_len
    calibrate_potentials(model, centroids, even_sequences(ids, settings.calibration_sequences, length))
    centroids.base_model, centroids.base_fingerprint = model_id, fingerprint(model)
    centroids.training = {
        **asdict(settings),
        "final_loss": last.loss,
        "final_dominance": last.dominance,
        "tokens_seen": settings.steps * settings.batch * length,
        "training_tokens": ids.numel(),
        "seconds": round(time.perf_counter() - started, 1),
    }
    return centroids


@torch.no_grad()
def _update_potentials(focus: Any, centroids: Centroids, decay: float, step: int) -> float:
    """Running average of Sinkhorn's column terms; returns the mean dominance of the batch."""
    shares = []
    for index, assignment in focus.assignments().items():
        router = centroids.routers[index]
        mean = assignment.potential.detach().mean(dim=0)
        router.potential.copy_(mean if step == 0 else decay * router.potential + (1 - decay) * mean)
        router.has_potential = True
        shares.append(dominance(assignment.probabilities))
    return sum(shares) / len(shares)


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
