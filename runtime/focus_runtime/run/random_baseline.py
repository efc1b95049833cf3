"""The random baseline: untrained centroids of a run's shape, the rule of their seed, and their groups of a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.measure.loss import check_positions, final_hidden, token_nll
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids, random_centroids

STATISTICS_SEED = 0  # of the baseline that is stored with a run
COMPARISON_SEED = 1000  # of the baseline in comparisons of settings and in corpora


@dataclass(frozen=True, slots=True)
class RandomLayerGroups:
    """Groups of T tokens in one layer under random centroids.

    Attributes:
        membership: (T,) bit sets that the attention executed.
        top: (T,) most probable group; confidence: (T,) its probability.
        entropy: (T,) of the probabilities, in nats.
        others: number of a part of the layer's heads -> (T,) bit sets, of those with another top-k.
    """

    membership: NDArray[np.int64]
    top: NDArray[np.uint8]
    confidence: NDArray[np.float32]
    entropy: NDArray[np.float32]
    others: dict[int, NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RandomGroups:
    """Groups and losses of a text of T tokens under random centroids.

    Attributes:
        layers: layer number -> its groups.
        seed: of projections and centroids.
        balanced_on: tokens on which their column potentials were estimated.
        nll: (T-1,) nats under their mask.
    """

    layers: dict[int, RandomLayerGroups]
    seed: int
    balanced_on: int
    nll: NDArray[np.float64]

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood."""
        return math.exp(float(self.nll.mean()))


def random_seed(centroids: Centroids) -> int | None:
    """Seed that untrained centroids were drawn from; None for trained ones."""
    seed = centroids.training.get("random_seed")
    return None if seed is None or centroids.training.get("steps") else int(seed)


def baseline_seed(own_seed: int | None, preferred: int) -> int:
    """Seed of the random baseline of a run; never the one that the run's own centroids were drawn from.

    Args:
        own_seed: see `random_seed`.
        preferred: `STATISTICS_SEED` or `COMPARISON_SEED`; used unless it is the run's own.
    """
    return next(seed for seed in (preferred, STATISTICS_SEED, COMPARISON_SEED) if seed != own_seed)


def random_baseline(
    model: Any,
    config: FocusConfig,
    *,
    seed: int,
    layers: Iterable[int] | None = None,
    calibrate_on: Tensor | Sequence[int] | None = None,
) -> Centroids:
    """Random centroids with the shape and settings of others, their column potentials estimated on some text.

    Args:
        model: the frozen model, Focus not composed.
        config: of the run or centroids that are compared with the baseline.
        seed: of projections and centroids; see `baseline_seed`.
        layers: layers with routers; those of `config` when None.
        calibrate_on: (N, T) or (T,) token ids; None leaves the potentials out, which Sinkhorn assignment does not use.
    """
    if layers is not None:
        chosen = tuple(sorted(layers))  # a budget names layers without groups too, those it gives full attention
        config = config.replace(layers=chosen, budget=tuple(entry for entry in config.budget if entry.layer in chosen))
    centroids = random_centroids(model, config, seed=seed)
    if calibrate_on is None:
        return centroids
    ids = torch.as_tensor(calibrate_on, device=input_device(model))
    return calibrate_potentials(model, centroids, ids if ids.ndim == 2 else ids[None])


@contextmanager
def random_focus(
    model: Any, config: FocusConfig, layers: Sequence[int], balance_on: Sequence[int], *, seed: int
) -> Iterator[FocusModel]:
    """Focus with the random baseline of a run composed on the model, until the block ends.

    Args:
        model: the frozen model, Focus not composed.
        config: of the run: K, routing size, k, window, sinks and assignment are kept.
        layers: those the run has groups in.
        balance_on: token ids for the column potentials; not used with Sinkhorn assignment.
        seed: of projections and centroids.
    """
    calibrate_on = balance_on if config.assignment == "causal" else None
    focus = compose(model, random_baseline(model, config, seed=seed, layers=layers, calibrate_on=calibrate_on))
    try:
        yield focus
    finally:
        focus.detach()


@torch.no_grad()
def random_groups(focus: FocusModel, ids: Sequence[int], *, seed: int, balanced_on: int) -> RandomGroups:
    """Groups and losses of a text under the Focus that `random_focus` gives.

    Args:
        focus: with random centroids.
        ids: T token ids.
        seed, balanced_on: recorded; see `RandomGroups`.

    Raises:
        InputError: more tokens than the model has positions.
    """
    check_positions(focus.model, len(ids))
    tokens = torch.tensor([list(ids)], device=input_device(focus.model))
    nll = token_nll(focus.model, final_hidden(focus.model, tokens), tokens)[0].double().cpu().numpy()
    layers, masks = {}, focus.head_masks()
    for index, assignment in focus.assignments().items():
        probabilities = assignment.probabilities[0].float().cpu().numpy()
        entropy = -(probabilities * np.log(np.clip(probabilities, 1e-30, None))).sum(axis=1)
        layers[index] = RandomLayerGroups(
            assignment.membership[0].cpu().numpy(),
            probabilities.argmax(axis=1).astype(np.uint8),
            probabilities.max(axis=1),
            entropy.astype(np.float32),
            {
                part: mask.membership[0].cpu().numpy()
                for part, mask in enumerate(masks[index])
                if not mask.group.setting.full and mask.group.setting.top_k != focus.config.top_k
            },
        )
    return RandomGroups(layers, seed, balanced_on, nll)
