"""How well groups and categories go together, from their counts. Leading axes are resamples or shuffles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import random_table

Values = NDArray[np.float64]

SHUFFLES = 999


def balance(sizes: Values) -> Values:
    """Entropy of the group sizes over that of even ones: 1 even, 0 a single group.

    Args:
        sizes: (..., K) tokens by group.
    """
    groups = sizes.shape[-1]
    return _entropy(sizes) / np.log(groups) if groups > 1 else np.zeros(sizes.shape[:-1])


def dominance(sizes: Values) -> Values:
    """Share of the tokens in the largest group; (...,) of (..., K)."""
    return sizes.max(axis=-1) / sizes.sum(axis=-1)


def purity(counts: Values) -> Values:
    """Share of tokens that are of their group's commonest category (Zhao and Karypis 2001).

    Args:
        counts: (..., K, C) tokens by group and category.
    """
    return counts.max(axis=-1).sum(axis=-1) / counts.sum(axis=(-2, -1))


def information(counts: Values) -> dict[str, Values]:
    """Mutual information of group and category in its common forms.

    Args:
        counts: (..., K, C) tokens by group and category.

    Returns:
        `nmi`: over the geometric mean of both entropies (Strehl and Ghosh 2002); `homogeneity`: over the entropy of the
        categories; `completeness`: over that of the groups; `v_measure`: the harmonic mean of these two (Rosenberg and
        Hirschberg 2007), which is mutual information over the arithmetic mean. All lie between 0 and 1; a labelling
        without entropy has homogeneity or completeness 1, and nmi 0.
    """
    of_groups, of_categories = _entropy(counts.sum(axis=-1)), _entropy(counts.sum(axis=-2))
    joint = _entropy(counts.reshape(*counts.shape[:-2], -1))
    shared = np.clip(of_groups + of_categories - joint, 0.0, np.minimum(of_groups, of_categories))  # but for rounding
    homogeneity = _over(shared, of_categories, 1.0)
    completeness = _over(shared, of_groups, 1.0)
    return {
        "nmi": np.minimum(_over(shared, np.sqrt(of_groups * of_categories), 0.0), 1.0),
        "homogeneity": homogeneity,
        "completeness": completeness,
        "v_measure": _over(2 * homogeneity * completeness, homogeneity + completeness, 0.0),
    }


def adjusted_rand(tables: Values) -> Values:
    """Adjusted Rand index (Hubert and Arabie 1985) of many tables at once: (...,) of (..., A, B).

    1 for the same partition, 0 on average for unrelated ones of the same sizes, 1 where both are trivial.
    """
    total = tables.sum(axis=(-2, -1))
    together, rows, columns = (
        (sizes * (sizes - 1)).sum(axis=axes) / 2
        for sizes, axes in ((tables, (-2, -1)), (tables.sum(axis=-1), -1), (tables.sum(axis=-2), -1))
    )
    expected = rows * columns / np.maximum(total * (total - 1) / 2, 1)
    most = (rows + columns) / 2
    return _over(together - expected, most - expected, 1.0)


def shuffled_tables(counts: Values, *, draws: int = SHUFFLES, seed: int = 0) -> Values:
    """Tables of the same margins as when the groups are dealt out to the tokens again at random.

    Args:
        counts: (K, C) whole numbers.

    Returns:
        (draws, K, C).
    """
    rows, columns = counts.sum(axis=1).astype(np.int64), counts.sum(axis=0).astype(np.int64)
    found = np.zeros((draws, *counts.shape))
    kept_rows, kept_columns = np.flatnonzero(rows), np.flatnonzero(columns)
    if kept_rows.size and kept_columns.size:
        tables = random_table(rows[kept_rows], columns[kept_columns], seed=np.random.default_rng(seed)).rvs(draws)
        found[np.ix_(np.arange(draws), kept_rows, kept_columns)] = tables
    return found


def _entropy(counts: Values) -> Values:
    """Entropy in nats over the last axis of counts."""
    total = np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300)
    shares = counts / total
    return -(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum(axis=-1)


def _over(numerator: Values, denominator: Values, otherwise: float) -> Values:
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    close = np.abs(denominator) < 1e-12
    return np.where(close, otherwise, numerator / np.where(close, 1.0, denominator))
