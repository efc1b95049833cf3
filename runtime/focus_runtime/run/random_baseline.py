"""The random baseline: untrained centroids of a run's shape, the rule of their seed, and their groups of a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.measure.loss import check_positions, final_hidden, token_nll
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids, random_centroids
from focus_runtime.run.text import layer_groups
from focus_runtime.run.trace import LayerGroups

STATISTICS_SEED = 0  # of the baseline that is stored with a run
COMPARISON_SEED = 1000  # of the baseline in comparisons of settings and in corpora


@dataclass(frozen=True, slots=True)
class RandomGroups:
    """Groups and losses, (T-1,) nats, of a text under random centroids that were balanced on some tokens."""

    layers: Sequence[LayerGroups]
    seed: int
    balanced_on: int
    nll: NDArray[np.float64]

    @property
    def perplexity(self) -> float:
        return math.exp(float(self.nll.mean()))


def random_seed(centroids: Centroids) -> int | None:
    """Seed that untrained centroids were drawn from; None for trained ones."""
    seed = centroids.training.get("random_seed")
    return None if seed is None or centroids.training.get("steps") else int(seed)


def baseline_seed(own_seed: int | None, preferred: int) -> int:
    """Seed of the random baseline of a run; never the one that the run's own centroids were drawn from."""
    return next(seed for seed in (preferred, STATISTICS_SEED, COMPARISON_SEED) if seed != own_seed)


def random_baseline(
    model: Any,
    config: FocusConfig,
    *,
    seed: int,
    layers: Iterable[int] | None = None,
    calibrate_on: Tensor | Sequence[int] | None = None,
) -> Centroids:
    """Random centroids with the shape and settings of others, by default for the same layers.

    Their column potentials, which Sinkhorn assignment does not use, are estimated on (N, T) or (T,) token ids.
    """
    if layers is not None:
        chosen = tuple(sorted(layers))  # a budget names layers without groups too, those it gives full attention
        config = config.replace(layers=chosen, budget=tuple(entry for entry in config.budget if entry.layer in chosen))
    centroids = random_centroids(model, config, seed=seed)
    if calibrate_on is None:
        return centroids
    ids = torch.as_tensor(calibrate_on, device=input_device(model))
    return calibrate_potentials(model, centroids, ids if ids.ndim == 2 else ids[None])


@torch.no_grad()
def random_groups(
    model: Any, config: FocusConfig, layers: Sequence[int], ids: Sequence[int], balance_on: Sequence[int], *, seed: int
) -> RandomGroups:
    """Groups and losses of a text under the random baseline of a run."""
    calibrate_on = balance_on if config.assignment == "causal" else None
    centroids = random_baseline(model, config, seed=seed, layers=layers, calibrate_on=calibrate_on)
    check_positions(model, len(ids))
    tokens = torch.tensor([list(ids)], device=input_device(model))
    with compose(model, centroids) as focus:
        nll = token_nll(model, final_hidden(model, tokens), tokens)[0].double().cpu().numpy()
        return RandomGroups(layer_groups(focus), seed, len(balance_on), nll)
