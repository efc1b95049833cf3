"""What a group holds and how far two layers agree, each with what chance gives. Knows arrays, no runs and no page.

Word classes are numbers of `focus_runtime.text.word_classes.CLASSES`; a token belongs to its most probable group.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from focus_explorer.statistics import labellings

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]

DRAWS = 200
STARVED_SHARE = 0.1  # of an even share


@dataclass(frozen=True, slots=True)
class PurityNull:
    """Purity of groups of the same sizes when assignments are shuffled: mean and 97.5 % quantile, (K,) each.

    NaN for a group without tokens.
    """

    mean: Values
    high: Values


def contingency(rows: NDArray[np.integer], columns: NDArray[np.integer], shape: tuple[int, int]) -> Numbers:
    """Tokens by two labellings.

    Args:
        rows, columns: (T,) labels below `shape`.

    Returns:
        Counts of that shape.
    """
    flat = rows.astype(np.int64) * shape[1] + columns
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)


def purity(counts: Numbers) -> Values:
    """Share of a group's tokens that are of its commonest word class.

    Args:
        counts: (K, C) tokens by group and class.

    Returns:
        (K,), NaN for a group without tokens.
    """
    sizes = counts.sum(axis=1)
    return np.where(sizes > 0, counts.max(axis=1) / np.maximum(sizes, 1), np.nan)


def shuffled_purity(counts: Numbers, *, draws: int = DRAWS, seed: int = 0) -> PurityNull:
    """Purity when a layer's assignments are shuffled over the tokens, group sizes kept.

    A shuffled group is a draw of as many tokens without replacement, so its class counts are drawn directly from
    their multivariate hypergeometric distribution instead of permuting the whole text.

    Args:
        counts: (K, C) tokens by group and class.
        draws: shuffles; seed: of the draws.
    """
    generator = np.random.default_rng(seed)
    sizes, classes = counts.sum(axis=1), counts.sum(axis=0)
    mean, high = np.full(len(sizes), np.nan), np.full(len(sizes), np.nan)
    for group, size in enumerate(sizes.tolist()):
        if size:
            drawn = generator.multivariate_hypergeometric(classes, size, size=draws, method="marginals")
            values = drawn.max(axis=1) / size
            mean[group], high[group] = values.mean(), np.quantile(values, 0.975)
    return PurityNull(mean, high)


def log_odds(counts: Numbers, *, prior_size: float) -> Values:
    """How much more often each piece is found in a group than in the rest of the text, in standard errors.

    Log-odds ratio with an informative Dirichlet prior (Monroe, Colaresi and Quinn 2008, equations 16 to 22): the prior
    has the text's own frequencies, so a piece must be frequent, not only exclusive, to stand out.

    Args:
        counts: (K, V) uses of V pieces by group; every piece is used somewhere.
        prior_size: tokens the prior weighs.

    Returns:
        (K, V) z-scores; 0 where a group or its rest is empty.
    """
    everywhere = counts.sum(axis=0)
    total = everywhere.sum()
    prior = prior_size * everywhere / total
    inside, outside = counts + prior, (everywhere - counts) + prior
    size_in, size_out = inside.sum(axis=1, keepdims=True), outside.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(inside / (size_in - inside)) - np.log(outside / (size_out - outside))
        score = ratio / np.sqrt(1 / inside + 1 / outside)
    sizes = counts.sum(axis=1, keepdims=True)
    return np.where((sizes == 0) | (sizes == total), 0.0, np.nan_to_num(score))


def adjusted_rand(table: Numbers) -> float:
    """Adjusted Rand index of two partitions (Hubert and Arabie 1985).

    Args:
        table: tokens by both partitions.

    Returns:
        1 for the same partition under any names, 0 on average for unrelated ones of the same sizes; 1 where both
        partitions are trivial.
    """
    return float(labellings.adjusted_rand(table.astype(np.float64)))


def layer_agreement(tops: NDArray[np.uint8], num_groups: int) -> Values:
    """Adjusted Rand index of every two layers.

    Args:
        tops: (L, T) most probable groups.

    Returns:
        (L, L), symmetric, 1 on the diagonal.
    """
    layers, shape = len(tops), (num_groups, num_groups)
    agreement = np.eye(layers)
    wide = tops.astype(np.int64)
    for first in range(layers):
        for second in range(first + 1, layers):
            value = adjusted_rand(contingency(wide[first], wide[second], shape))
            agreement[first, second] = agreement[second, first] = value
    return agreement


def shuffled_agreement(tops: NDArray[np.uint8], num_groups: int, *, seed: int = 0) -> Values:
    """Adjusted Rand index of each layer with the next one when the next one's assignments are shuffled; (L - 1,)."""
    generator = np.random.default_rng(seed)
    shape = (num_groups, num_groups)
    return np.array([adjusted_rand(contingency(a, generator.permutation(b), shape)) for a, b in pairwise(tops)])


def flags(sizes: Numbers) -> list[list[str]]:
    """What is wrong with the balance of each group.

    `dead`: no tokens. `starved`: less than a tenth of an even share. `collapsed`: more than halfway between an even
    share and everything.

    Args:
        sizes: (K,) tokens of one layer's groups.
    """
    total, groups = int(sizes.sum()), len(sizes)
    found: list[list[str]] = []
    for size in sizes.tolist():
        share = size / total if total else 0.0
        names = {
            "dead": size == 0,
            "starved": 0 < share < STARVED_SHARE / groups,
            "collapsed": groups > 1 and share > (1 + 1 / groups) / 2,
        }
        found.append([name for name, holds in names.items() if holds])
    return found
