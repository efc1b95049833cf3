"""Every rule of a confidence interval, and paired tests. A function gives the same answer for the same `seed`.

`mean_interval`: a mean over a few units (documents, sequences, items; a resample takes or leaves each as a whole) and
training seeds. `moving_block_interval`: a mean along one text, whose neighbouring tokens depend on each other.
`recentred_interval`: any statistic from its values in resamples. `percentile_ends`: the range of draws, as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from focus_runtime.errors import InputError

LEVEL = 0.95
RESAMPLES = 10_000
EXACT_UP_TO = 16  # units; 2^16 sign patterns take a moment, each further unit doubles it
COARSE_BELOW = 8  # units; the bootstrap distribution of fewer has too few values for its tails to mean anything
CHUNK = 1 << 22  # numbers drawn at once
BLOCK_TOKENS, BLOCK_RESAMPLES = 32, 2000  # of the moving-block bootstrap

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval; the ends are None for one unit, whose spread is unknown."""

    value: float
    low: float | None
    high: float | None
    units: int
    seeds: int = 1

    def through(self, function: Callable[[float], float]) -> Interval:
        """The interval of an increasing function of the estimate, such as exp for perplexities."""
        low, high = (None if end is None else function(end) for end in (self.low, self.high))
        return Interval(function(self.value), low, high, self.units, self.seeds)

    def within(self, least: float, most: float) -> Interval:
        """The interval of a quantity with a range, such as a share; few units may reach beyond it."""
        low, high = (None if end is None else min(most, max(least, end)) for end in (self.low, self.high))
        return Interval(self.value, low, high, self.units, self.seeds)

    def to_dict(self) -> dict[str, float | None]:
        """Value and ends, JSON-ready."""
        return {"value": self.value, "low": self.low, "high": self.high}


def _finite(values: ArrayLike, dimensions: tuple[int, ...]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in dimensions or array.size == 0:
        raise InputError(f"the values have the shape {array.shape}", expected="at least one number for each unit")
    if not np.isfinite(array).all():
        raise InputError("the values hold NaN or infinity", expected="finite numbers", fix="look for a diverged run")
    return array


def mean_interval(
    values: ArrayLike, weights: ArrayLike | None = None, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Weighted mean over units, and over training seeds where there are several, with a bootstrap interval.

    Seeds and units are crossed (every seed saw the same units), so both are resampled, independently (Owen, "The
    pigeonhole bootstrap", 2007). The bootstrap gives the shape, and the width is that of Student's t with the unbiased
    spread (see `student_widening`; degrees of freedom after Satterthwaite). With fewer than `COARSE_BELOW` units it is
    the t interval itself.

    `values`: (N,) one number for each unit, or (S, N) for S seeds. `weights`: (N,) how much each unit counts, such as
    its tokens. None: equally.
    """
    table = np.atleast_2d(_finite(values, (1, 2)))
    seeds, units = table.shape
    weight = np.ones(units) if weights is None else _finite(weights, (1,))
    if weight.size != units or (weight <= 0).any():
        raise InputError(f"{weight.size} weights for {units} units", expected="one weight above 0 for each")
    weight = weight / weight.mean()
    seed_means = table @ weight / weight.sum()
    value = float(seed_means.mean())
    if units == 1:
        return Interval(value, None, None, units, seeds)
    by_unit = np.square(weight * (table.mean(axis=0) - value)).sum() / (units * (units - 1))
    by_seed = seed_means.var(ddof=1) / seeds if seeds > 1 else 0.0
    variance = float(by_unit + by_seed)
    if variance <= (1e-12 * max(1.0, abs(value))) ** 2:  # identical values, but for rounding
        return Interval(value, value, value, units, seeds)
    freedom = variance**2 / (by_unit**2 / (units - 1) + (by_seed**2 / (seeds - 1) if seeds > 1 else 0.0))
    below = above = 1.0  # how far the tails reach, against a normal distribution of the bootstrap's spread
    if units >= COARSE_BELOW:
        means = resampled_means(table, weight, resamples, seed)
        normal = NormalDist().inv_cdf((1 + LEVEL) / 2) * means.std()
        low, high = percentile_ends(means)
        below, above = max(0.0, float((value - low) / normal)), max(0.0, float((high - value) / normal))
    reach = student_quantile(freedom, (1 + LEVEL) / 2) * math.sqrt(variance)
    return Interval(value, value - below * reach, value + above * reach, units, seeds)


def moving_block_interval(
    values: Floats, *, resamples: int = BLOCK_RESAMPLES, seed: int = 0
) -> tuple[float, float | None, float | None]:
    """Mean of (N,) values along one text, and ends of its 95 % moving-block bootstrap interval, None for one value.

    Blocks keep the dependence between neighbouring tokens (Kuensch 1989); they are shorter in a short text. The ends
    follow `recentred_interval` with the blocks as units.
    """
    count = values.size
    if count == 1:
        return float(values[0]), None, None
    width = max(1, min(BLOCK_TOKENS, count // 4))
    blocks = -(-count // width)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    totals = sums[width:] - sums[:-width]
    picks = np.random.default_rng(seed).integers(0, totals.size, size=(resamples, blocks))
    replicates = totals[picks].sum(axis=1, keepdims=True) / (blocks * width)
    mean = values.mean(keepdims=True)
    low, high = recentred_interval(mean, replicates, blocks, -math.inf, math.inf)
    return float(mean[0]), float(low[0]), float(high[0])


def recentred_interval(
    values: Floats, replicates: Floats, units: int, least: float = 0.0, most: float = 1.0
) -> tuple[Floats, Floats]:
    """Ends of the 95 % intervals of (n,) statistics at once, from their (R, n) finite values in resamples of units.

    The bootstrap distribution gives the shape. It is moved onto the estimate, because statistics such as mutual
    information are too high in resamples, and widened to Student's t (Hesterberg 2015).
    """
    low, high = percentile_ends(replicates) - replicates.mean(axis=0)
    wide = student_widening(units)
    return np.maximum(least, values + wide * low), np.minimum(most, values + wide * high)


def percentile_ends(draws: Floats) -> Floats:
    """Both percentiles over the first axis between which a share `LEVEL` of the draws lies: (2, ...) of (R, ...)."""
    tail = round((1 - LEVEL) / 2, 12)
    return np.asarray(np.quantile(draws, [tail, 1 - tail], axis=0))


def student_quantile(freedom: float, probability: float) -> float:
    """Quantile of Student's t distribution."""
    from scipy.special import stdtrit  # not needed to compose, attend or score

    return float(stdtrit(freedom, probability))


def student_widening(units: int) -> float:
    """Factor that widens a percentile interval over n units to Student's t with the unbiased spread.

    A percentile interval is too narrow for few units: its ends lie at the normal quantiles of a spread that divides
    by n (Hesterberg, "What teachers should know about the bootstrap", 2015).
    """
    probability = (1 + LEVEL) / 2
    t_over_normal = student_quantile(units - 1, probability) / NormalDist().inv_cdf(probability)
    return t_over_normal * math.sqrt(units / (units - 1))


def resampled_means(table: Floats, weight: Floats, resamples: int, seed: int) -> Floats:
    """(R,) means of resampled units and seeds of an (S, N) table; the (N,) weights have a mean of one."""
    seeds, units = table.shape
    generator = np.random.default_rng(seed)
    weighted, means = table * weight, []
    for start in range(0, resamples, step := max(1, CHUNK // units)):
        count = min(step, resamples - start)
        picked = generator.multinomial(units, np.full(units, 1 / units), size=count)
        by_seed = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=count)
        means.append(((by_seed @ weighted) * picked).sum(axis=1) / (seeds * (picked @ weight)))
    return np.concatenate(means)


def sign_flip_test(differences: ArrayLike, *, resamples: int = 20_000, seed: int = 0) -> float:
    """Two-sided p-value that paired differences are symmetric around 0, from the mean under random sign flips.

    Exact, over all 2^n sign patterns, up to `EXACT_UP_TO` units; beyond them from `resamples` random patterns, the
    observed one counted in. The smallest p that n units allow is 2 / 2^n.
    """
    values = _finite(differences, (1,))
    count = values.size
    observed = abs(values.sum())
    # flipping reorders the additions, so equal sums differ in the last bits
    enough = observed - 1e-12 * np.abs(values).sum()
    if count <= EXACT_UP_TO:
        patterns = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
        return float((np.abs((1 - 2 * patterns) @ values) >= enough).mean())
    generator, reached = np.random.default_rng(seed), 0
    for start in range(0, resamples, step := max(1, CHUNK // count)):
        signs = 1 - 2 * generator.integers(0, 2, size=(min(step, resamples - start), count))
        reached += int((np.abs(signs @ values) >= enough).sum())
    return (1 + reached) / (1 + resamples)


def bootstrap_test(differences: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Two-sided p-value that the mean paired difference is 0, from resampled units shifted to 0; 1 for one unit."""
    values = _finite(differences, (1,))
    value = values.mean()
    if values.size == 1:
        return 1.0
    means = resampled_means(values[None], np.ones(values.size), resamples, seed)
    reached = np.abs(means - value) >= abs(value) - 1e-12 * np.abs(values).mean()
    return float((1 + reached.sum()) / (1 + resamples))


def wilcoxon_test(differences: ArrayLike) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test; pairs without a difference are left out, 1 when all are."""
    from scipy.stats import wilcoxon

    values = _finite(differences, (1,))
    values = values[values != 0]
    return float(wilcoxon(values).pvalue) if values.size else 1.0


@dataclass(frozen=True, slots=True)
class McNemar:
    """Exact McNemar test of two settings; `only_first`: items that the first setting alone has right."""

    only_first: int
    only_second: int
    p_value: float


def mcnemar_test(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Compare two settings that were right (1) or wrong (0) on the same items."""
    one, two = _finite(first, (1,)), _finite(second, (1,))
    if one.shape != two.shape or not np.isin(np.concatenate([one, two]), (0, 1)).all():
        raise InputError(f"{one.size} and {two.size} answers", expected="zeros and ones for the same items")
    gained, lost = int((two > one).sum()), int((one > two).sum())
    tail = sum(math.comb(gained + lost, k) for k in range(min(gained, lost) + 1))
    return McNemar(lost, gained, min(1.0, float(2 * tail / 2 ** (gained + lost))))
