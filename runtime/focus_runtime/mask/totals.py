"""Allowed pairs of many layers at once, counted over the whole text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from focus_runtime.mask.distances import shared_before, shared_from
from focus_runtime.mask.rule import CAUSES, PairRule


def pair_totals(membership: NDArray[np.int64], rules: Sequence[PairRule]) -> NDArray[np.int64]:
    """Exact pair counts by cause of all layers at once, as `count_pairs` has them but over the whole text.

    Args:
        membership: (L, T) bit sets.
        rules: L, one for each layer.

    Returns:
        (L, 5) in the order of `CAUSES`.
    """
    counts = np.zeros((membership.shape[0], len(CAUSES)), dtype=np.int64)
    for rule in set(rules):
        layers = [number for number, own in enumerate(rules) if own == rule]
        counts[layers] = _totals(membership[layers], rule)
    return counts


def _totals(membership: NDArray[np.int64], rule: PairRule) -> NDArray[np.int64]:
    layers, total = membership.shape
    farthest = rule.farthest(total)
    alone = np.count_nonzero(membership, axis=1)  # tokens that share a group with themselves: all that have one
    shared = np.array([_sharing(row) for row in membership], dtype=np.int64)
    if farthest < total - 1:
        shared -= np.array([shared_from(row, np.array([farthest + 1]))[0] for row in membership])
    small = membership.astype(np.uint8) if int(membership.max(initial=0)) < 256 else membership
    first_near = np.maximum(0, rule.nearest_far(np.arange(total)))  # of every query
    near = int((np.arange(total) - first_near + 1).sum())
    if rule.grows:
        ends = np.stack([np.arange(1, total + 1), first_near])
        both = np.array([-np.diff(shared_before(row, ends))[0] for row in membership], dtype=np.int64)
    else:
        both = alone.copy()
        for distance in range(1, min(rule.near(0), total - 1) + 1):
            both += np.count_nonzero(small[:, distance:] & small[:, : total - distance], axis=1)
    sinks = np.zeros(layers, dtype=np.int64)
    for sink in range(min(rule.num_sinks, total)):
        first_far = int(np.searchsorted(first_near, sink, "right"))
        far = small[:, first_far : sink + farthest + 1] & small[:, sink : sink + 1]
        sinks += far.shape[1] - np.count_nonzero(far, axis=1)
    dropped = total * (total + 1) // 2 - near - (shared - both) - sinks
    return np.stack([near - both, shared - both, both, sinks, dropped], axis=1)


def _sharing(membership: NDArray[np.int64]) -> int:
    """Causal pairs, each token with itself included, that share a group: from counts of each membership, never T^2."""
    signatures, counts = np.unique(membership, return_counts=True)
    meet = (signatures[:, None] & signatures[None, :]) != 0
    return int(counts @ meet @ counts + counts[signatures != 0].sum()) // 2
