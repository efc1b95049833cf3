"""P-values of z-scores and of counts, and corrected for many comparisons; scipy is imported by the first call."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]


def two_sided_p_values(scores: Values) -> Values:
    """Two-sided p-values of z-scores, of the same shape."""
    from scipy.stats import norm

    return np.asarray(2 * norm.sf(np.abs(scores)))


def hypergeometric_p_values(counts: Values) -> Values:
    """Two-sided p-values of every cell of a table when the labels of its rows are permuted over the tokens.

    Twice the probability of a count as far from its expectation or farther on the same side, at most 1. It is exact: z
    and the normal distribution call a rare category significant where it occurs once.

    Args:
        counts: (K, C) whole numbers.

    Returns:
        (K, C).
    """
    from scipy.stats import hypergeom

    total = counts.sum()
    rows, columns = counts.sum(axis=1, keepdims=True), counts.sum(axis=0, keepdims=True)
    above = counts * total >= rows * columns
    tail = np.empty(counts.shape)
    for side, chance in ((above, lambda *cells: hypergeom.sf(cells[0] - 1, *cells[1:])), (~above, hypergeom.cdf)):
        of_row, of_column = (np.broadcast_to(sizes, counts.shape)[side] for sizes in (rows, columns))
        tail[side] = chance(counts[side], total, of_column, of_row)
    return np.minimum(2 * tail, 1.0)


def corrected_p_values(p_values: ArrayLike) -> Values:
    """q-values over all p-values of one family (Benjamini and Hochberg 1995), of the same shape."""
    from scipy.stats import false_discovery_control

    values = np.asarray(p_values, dtype=np.float64)
    return np.asarray(false_discovery_control(values.ravel())).reshape(values.shape)
