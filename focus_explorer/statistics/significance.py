"""P-values of z-scores, and p-values corrected for many comparisons; scipy is imported by the first call."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]


def two_sided_p_values(scores: Values) -> Values:
    """Two-sided p-values of z-scores, of the same shape."""
    from scipy.stats import norm

    return np.asarray(2 * norm.sf(np.abs(scores)))


def corrected_p_values(p_values: ArrayLike) -> Values:
    """q-values over all p-values of one family (Benjamini and Hochberg 1995), of the same shape."""
    from scipy.stats import false_discovery_control

    values = np.asarray(p_values, dtype=np.float64)
    return np.asarray(false_discovery_control(values.ravel())).reshape(values.shape)
