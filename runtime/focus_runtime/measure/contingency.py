"""Two labellings of the same tokens, such as groups and categories, from their contingency table.

Purity, entropy, mutual information, adjusted Rand index, log-odds, and tables of permuted labels as the null of each.
Leading axes of a table are resamples or permutations.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.int64]
Values = NDArray[np.float64]
Labels = NDArray[np.integer]
Table = NDArray[np.integer] | NDArray[np.floating]

SHUFFLES = 999


def contingency(rows: Labels, columns: Labels, shape: tuple[int, int]) -> Counts:
    """Tokens by two labellings, (T,) labels each, below `shape`."""
    flat = rows.astype(np.int64) * shape[1] + columns
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)


def balance(sizes: Table) -> Values:
    """Entropy of the group sizes over that of even ones: 1 even, 0 a single group; (...,) of (..., K) tokens."""
    groups = sizes.shape[-1]
    return entropy(sizes) / np.log(groups) if groups > 1 else np.zeros(sizes.shape[:-1])


def dominance(sizes: Table) -> Values:
    """Share of the tokens in the largest group; (...,) of (..., K)."""
    return sizes.max(axis=-1) / sizes.sum(axis=-1)


def purity(counts: Table) -> Values:
    """Share of all tokens that are of their group's commonest category (Zhao and Karypis 2001)."""
    return counts.max(axis=-1).sum(axis=-1) / counts.sum(axis=(-2, -1))


def group_purity(counts: Table) -> Values:
    """Share of each group's tokens that are of its commonest category; (..., K) of (..., K, C), NaN without tokens."""
    sizes = counts.sum(axis=-1)
    return np.where(sizes > 0, counts.max(axis=-1) / np.maximum(sizes, 1), np.nan)


def information(counts: Table) -> dict[str, Values]:
    """Mutual information of group and category in its common forms, (...,) of (..., K, C), all between 0 and 1.

    `nmi`: over the geometric mean of both entropies (Strehl and Ghosh 2002); `homogeneity`: over the entropy of the
    categories; `completeness`: over that of the groups; `v_measure`: the harmonic mean of these two (Rosenberg and
    Hirschberg 2007). A labelling without entropy has homogeneity or completeness 1, and nmi 0.
    """
    of_groups, of_categories, shared = _entropies(counts)
    homogeneity = _over(shared, of_categories, 1.0)
    completeness = _over(shared, of_groups, 1.0)
    return {
        "nmi": np.minimum(_over(shared, np.sqrt(of_groups * of_categories), 0.0), 1.0),
        "homogeneity": homogeneity,
        "completeness": completeness,
        "v_measure": _over(2 * homogeneity * completeness, homogeneity + completeness, 0.0),
    }


def normalised_information(counts: Table) -> Values:
    """Mutual information over the mean of both entropies: `v_measure`, but 0 where both labels are constant."""
    of_groups, of_categories, shared = _entropies(counts)
    return _over(2 * shared, of_groups + of_categories, 0.0)


def adjusted_rand(tables: Table) -> Values:
    """Adjusted Rand index (Hubert and Arabie 1985) of many tables at once: (...,) of (..., A, B).

    1 for the same partition, 0 on average for unrelated ones of the same sizes, 1 where both are trivial.
    """
    tables = tables.astype(np.float64)
    total = tables.sum(axis=(-2, -1))
    joint, rows, columns = (
        (sizes * (sizes - 1)).sum(axis=axes) / 2
        for sizes, axes in ((tables, (-2, -1)), (tables.sum(axis=-1), -1), (tables.sum(axis=-2), -1))
    )
    expected = rows * columns / np.maximum(total * (total - 1) / 2, 1)
    most = (rows + columns) / 2
    return _over(joint - expected, most - expected, 1.0)


def log_odds(counts: Counts, *, prior_size: float) -> Values:
    """(K, V) z-scores: how much more often each of V pieces occurs in a group than in the rest of the text.

    Log-odds ratio with an informative Dirichlet prior (Monroe, Colaresi and Quinn 2008, equations 16 to 22): the prior
    has the text's own frequencies, so a piece must be frequent, not only exclusive, to stand out. 0 where a group or
    its rest is empty; every piece is used somewhere.
    """
    column_sums = counts.sum(axis=0)
    total = column_sums.sum()
    prior = prior_size * column_sums / total
    inside, outside = counts + prior, (column_sums - counts) + prior
    size_in, size_out = inside.sum(axis=1, keepdims=True), outside.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(inside / (size_in - inside)) - np.log(outside / (size_out - outside))
        score = ratio / np.sqrt(1 / inside + 1 / outside)
    sizes = counts.sum(axis=1, keepdims=True)
    return np.where((sizes == 0) | (sizes == total), 0.0, np.nan_to_num(score))


def shuffled_tables(counts: Table, *, draws: int = SHUFFLES, seed: int = 0) -> Values:
    """(draws, K, C) tables of the same margins, as when the labels of the rows are permuted over the tokens.

    They are drawn from their distribution directly, without the labels (Patefield's algorithm).
    """
    from scipy.stats import random_table  # not needed to compose, attend or score

    rows, columns = counts.sum(axis=1).astype(np.int64), counts.sum(axis=0).astype(np.int64)
    kept_rows, kept_columns = np.flatnonzero(rows), np.flatnonzero(columns)
    if kept_rows.size < 2 or kept_columns.size < 2:  # no other table has these margins; scipy does not draw it
        return np.repeat(counts[None].astype(np.float64), draws, axis=0)
    drawn = np.zeros((draws, *counts.shape))
    tables = random_table(rows[kept_rows], columns[kept_columns], seed=np.random.default_rng(seed)).rvs(draws)
    drawn[np.ix_(np.arange(draws), kept_rows, kept_columns)] = tables
    return drawn


def permuted_tables(
    rows: Labels, columns: Labels, shape: tuple[int, int], *, draws: int, generator: np.random.Generator
) -> Iterator[Counts]:
    """Tables of (T,) labels of which the columns are permuted; slower than `shuffled_tables`, of the same distribution.

    Stored numbers and published tables were drawn this way, so their nulls keep this stream of random numbers.
    """
    for _ in range(draws):
        yield contingency(rows, generator.permutation(columns), shape)


def entropy(counts: ArrayLike) -> Values:
    """Entropy in nats over the last axis of counts."""
    table = np.asarray(counts, dtype=np.float64)
    shares = table / np.maximum(table.sum(axis=-1, keepdims=True), 1e-300)
    return -(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum(axis=-1)


def _entropies(counts: Table) -> tuple[Values, Values, Values]:
    """Entropy of the groups, of the categories, and their mutual information."""
    of_groups, of_categories = entropy(counts.sum(axis=-1)), entropy(counts.sum(axis=-2))
    joint = entropy(counts.reshape(*counts.shape[:-2], -1))
    most = np.minimum(of_groups, of_categories)  # rounding could lift the difference above it
    return of_groups, of_categories, np.clip(of_groups + of_categories - joint, 0.0, most)


def _over(numerator: Values, denominator: Values, otherwise: float) -> Values:
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    close = np.abs(denominator) < 1e-12
    return np.where(close, otherwise, numerator / np.where(close, 1.0, denominator))
