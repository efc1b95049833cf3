"""Mean of values along a text with an interval that respects their dependence. It knows nothing of groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 32
RESAMPLES = 2000


def mean_interval(
    values: NDArray[np.float64], *, block: int = BLOCK_TOKENS, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float, float]:
    """Mean with a 95 % moving-block bootstrap interval; blocks keep the dependence between neighbouring tokens.

    Args:
        values: (N,) in text order, N at least 1.
        block: consecutive values resampled together; lowered for short texts.

    Returns:
        mean, low, high.
    """
    count = values.size
    width = max(1, min(block, count // 4))
    blocks = -(-count // width)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    totals = sums[width:] - sums[:-width]
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, totals.size, size=(resamples, blocks))
    means = totals[picks].sum(axis=1) / (blocks * width)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(values.mean()), float(low), float(high)
