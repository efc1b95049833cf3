"""Purity of each group: with its bootstrap interval, and under permuted assignments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_explorer.statistics.resample import Estimate, ratio
from focus_runtime.measure.intervals import percentile_ends

Counts = NDArray[np.int64]
Values = NDArray[np.float64]

DRAWS = 200


@dataclass(frozen=True, slots=True)
class PurityNull:
    """Purity of groups of the same sizes when assignments are permuted: mean and 97.5 % quantile, (K,) each.

    NaN for a group without tokens.
    """

    mean: Values
    high: Values


def group_purity_estimates(
    counts: Values, drawn: Values, used: Counts, leading: Counts, held_by: Counts
) -> list[Estimate]:
    """Purity of each of K groups; `Estimate.interval` gives its 95 % bootstrap interval.

    Args:
        counts: (K, C) tokens by group and category.
        drawn: (R, K, C') the same in every resample, of the used categories alone.
        used: (C',) numbers of the categories that have tokens.
        leading: (K,) category of each group whose share is taken: its commonest one, or that of another labelling.
        held_by: (K,) resampled units that have tokens of each group.

    Returns:
        K estimates, NaN for a group without tokens.
    """
    column = {int(category): place for place, category in enumerate(used)}
    sizes, drawn_sizes = counts.sum(axis=1), drawn.sum(axis=2)
    estimates = []
    for group, category in enumerate(leading.tolist()):
        inside = drawn[:, group, column[category]] if category in column else np.zeros(len(drawn))
        value = float(counts[group, category] / sizes[group]) if sizes[group] else float("nan")
        estimates.append(Estimate(value, ratio(inside, drawn_sizes[:, group]), held_by=int(held_by[group])))
    return estimates


def shuffled_group_purity(counts: Counts, *, draws: int = DRAWS, seed: int = 0) -> PurityNull:
    """Purity of each group when a layer's assignments are permuted over the tokens, group sizes kept.

    A permuted group is a draw of as many tokens without replacement, so its class counts are drawn directly from
    their multivariate hypergeometric distribution instead of permuting the whole text.

    Args:
        counts: (K, C) tokens by group and class.
        draws: permutations; seed: of the draws.
    """
    generator = np.random.default_rng(seed)
    sizes, classes = counts.sum(axis=1), counts.sum(axis=0)
    mean, high = np.full(len(sizes), np.nan), np.full(len(sizes), np.nan)
    for group, size in enumerate(sizes.tolist()):
        if size:
            drawn = generator.multivariate_hypergeometric(classes, size, size=draws, method="marginals")
            values = drawn.max(axis=1) / size
            mean[group], high[group] = values.mean(), percentile_ends(values)[1]
    return PurityNull(mean, high)
