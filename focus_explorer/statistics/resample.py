"""Uncertainty: a bootstrap over sentences or documents, and p-values, corrected for many comparisons.

A resample draws as many units as there are, with replacement. One set of weights serves every statistic, so that
differences are paired; intervals follow `recentred_interval`. scipy is imported by the first p-value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from focus_runtime.measure.intervals import recentred_interval

RESAMPLES = 1000
MOST_UNITS = 5000  # more are joined at random: the weights would fill the memory

Values = NDArray[np.float64]
Weights = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic and its values in R resamples."""

    value: float  # on the whole sample; NaN where it is undefined
    replicates: Values  # (R,) NaN where a resample left it undefined
    least: float = 0.0
    most: float = 1.0
    held_by: int | None = None  # how many units hold something of its denominator, such as tokens of a group. None: all

    def interval(self, units: int) -> tuple[float | None, float | None]:
        """Ends of the 95 % interval; None for fewer than two units that hold something, or an undefined value."""
        finite, units = self.replicates[np.isfinite(self.replicates)], self.units(units)
        if units < 2 or not np.isfinite(self.value) or finite.size < self.replicates.size / 2:
            return None, None
        low, high = recentred_interval(np.array([self.value]), finite[:, None], units, self.least, self.most)
        return float(low[0]), float(high[0])

    def units(self, resampled: int) -> int:
        """Units that the statistic rests on, of those that were resampled."""
        return resampled if self.held_by is None else min(resampled, self.held_by)

    def minus(self, other: Estimate) -> Estimate:
        """The difference, resampled in pairs."""
        replicates, held_by = self.replicates - other.replicates, fewest_units([self, other])
        return Estimate(self.value - other.value, replicates, -1.0, 1.0, held_by)


def fewest_units(estimates: Sequence[Estimate]) -> int | None:
    """The least `held_by`; None where every unit holds something of each."""
    return min((one.held_by for one in estimates if one.held_by is not None), default=None)


def mean_of(estimates: list[Estimate], weights: Sequence[int] | None = None) -> Estimate:
    """The weighted mean over layers or heads of one statistic, resampled together."""
    first = estimates[0]
    if len(estimates) == 1:
        return first
    return Estimate(
        float(np.average([one.value for one in estimates], weights=weights)),
        np.average([one.replicates for one in estimates], axis=0, weights=weights),
        first.least,
        first.most,
        fewest_units(estimates),
    )


class Resampler:
    """Weights of U units in R resamples; `units` is (T,) number of the unit each token belongs to, from 0."""

    def __init__(self, units: NDArray[np.integer], *, resamples: int = RESAMPLES, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.count = int(units.max()) + 1
        self.of_token = units.astype(np.int64)
        joined = self.count
        if self.count > MOST_UNITS:
            joined = MOST_UNITS
            self.of_token = generator.permutation(np.arange(self.count) % joined)[self.of_token]
        self.bins = joined
        drawn = generator.multinomial(joined, np.full(joined, 1 / joined), size=resamples)
        self.weights: Weights = drawn.astype(np.float32)

    def tally(self, codes: NDArray[np.integer], cells: int, values: NDArray[np.floating] | None = None) -> Values:
        """(U, cells) sums of the first n tokens, or of their (n,) values, by unit and by (n,) cell."""
        flat = self.of_token[: codes.size] * cells + codes
        return np.bincount(flat, values, minlength=self.bins * cells).reshape(self.bins, cells).astype(np.float64)

    def draw(self, sums: Values) -> Values:
        """(R, cells) the same sums in every resample."""
        return (self.weights @ sums.astype(np.float32)).astype(np.float64)


def held(denominators: Values) -> NDArray[np.intp]:
    """Units that hold something of each denominator: (...,) of (U, ...)."""
    return np.asarray((denominators > 0).sum(axis=0))


def ratio(numerator: Values, denominator: Values) -> Values:
    """Quotients, NaN where nothing is divided by."""
    return np.divide(
        numerator, denominator, out=np.full(np.broadcast(numerator, denominator).shape, np.nan), where=denominator > 0
    )


def two_sided_p_values(scores: Values) -> Values:
    """Two-sided p-values of z-scores, of the same shape."""
    from scipy.stats import norm

    return np.asarray(2 * norm.sf(np.abs(scores)))


def hypergeometric_p_values(counts: Values) -> Values:
    """Two-sided p-values of every cell of a (K, C) table when the labels of its rows are permuted over the tokens.

    Twice the probability of a count as far from its expectation or farther on the same side, at most 1. It is exact: z
    and the normal distribution call a rare category significant where it occurs once.
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
