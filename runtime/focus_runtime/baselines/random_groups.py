"""The groups random centroids give a text: the null that follows the model's hidden states too. It trains nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.measure.loss import check_positions, final_hidden, token_nll
from focus_runtime.routing.centroids import random_centroids
from focus_runtime.training.calibrate import calibrate_potentials


@dataclass(frozen=True, slots=True)
class ChanceGroups:
    """One layer: (T,) bit sets that the attention executed, most probable group, its probability, entropy in nats."""

    membership: NDArray[np.int64]
    top: NDArray[np.uint8]
    confidence: NDArray[np.float32]
    entropy: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Chance:
    """What random centroids did to a text.

    Attributes:
        layers: layer number -> its groups.
        seed: of projections and centroids.
        balanced_on: tokens on which their column potentials were estimated.
        nll: (T-1,) nats under their mask.
    """

    layers: dict[int, ChanceGroups]
    seed: int
    balanced_on: int
    nll: NDArray[np.float64]

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood."""
        return math.exp(float(self.nll.mean()))


@contextmanager
def random_focus(
    model: Any, config: FocusConfig, layers: Sequence[int], balance_on: Sequence[int], *, seed: int = 0
) -> Iterator[FocusModel]:
    """Focus with random centroids of a run's shape and settings, balanced on some other text.

    Args:
        config: of the run: K, routing size, k, window, sinks and assignment are kept.
        layers: those the run has groups in.
        balance_on: token ids for the column potentials, not used with Sinkhorn assignment.
        seed: of projections and centroids.
    """
    centroids = random_centroids(model, config.replace(layers=tuple(layers)), seed=seed)
    if config.assignment == "causal":
        device = next(model.parameters()).device
        calibrate_potentials(model, centroids, torch.tensor([list(balance_on)], device=device))
    focus = compose(model, centroids)
    try:
        yield focus
    finally:
        focus.detach()


@torch.no_grad()
def chance_groups(focus: FocusModel, ids: Sequence[int], *, seed: int, balanced_on: int) -> Chance:
    """Run a text through what `random_focus` gives.

    Args:
        ids: T token ids.

    Raises:
        InputError: more tokens than the model has positions.
    """
    check_positions(focus.model, len(ids))
    tokens = torch.tensor([list(ids)], device=next(focus.model.parameters()).device)
    nll = token_nll(focus.model, final_hidden(focus.model, tokens), tokens)[0].double().cpu().numpy()
    layers = {}
    for index, assignment in focus.assignments().items():
        probabilities = assignment.probabilities[0].float().cpu().numpy()
        entropy = -(probabilities * np.log(np.clip(probabilities, 1e-30, None))).sum(axis=1)
        layers[index] = ChanceGroups(
            assignment.membership[0].cpu().numpy(),
            probabilities.argmax(axis=1).astype(np.uint8),
            probabilities.max(axis=1),
            entropy.astype(np.float32),
        )
    return Chance(layers, seed, balanced_on, nll)
