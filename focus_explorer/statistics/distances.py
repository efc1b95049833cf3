"""Pairs kept by distance, counted query by query so that they can be resampled. Causes are those of the mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_explorer.statistics.resample import Resampler, Values
from focus_runtime.mask.distances import distance_bins, shuffled_sharing
from focus_runtime.mask.rule import PairRule

Ints = NDArray[np.int64]
TABLE_ENTRIES = 1 << 24  # entries of the running counts held at once


@dataclass(frozen=True, slots=True)
class Bins:
    """B ranges of distances, none on both sides of a window or a sliding window: (B,) first and last distance."""

    first: Ints
    last: Ints

    @classmethod
    def of(cls, longest: int, rules: Sequence[PairRule]) -> Bins:
        """Those of `distance_bins` up to the longest document, cut at the rules of all layers."""
        return cls(*distance_bins(longest, rules))


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Causal pairs by unit and distance.

    Attributes:
        pairs: (U, B) all of them; ruled: those that window and sinks keep; kept: those the mask keeps.
        undecided: (U, B) those in the layer's reach that the groups decide.
        sharing: probability that two tokens share a group when assignments are permuted; mean over heads.
        expected: (U, B) pairs kept then, where heads differ; else they follow from the others.
    """

    pairs: Values
    ruled: Values
    kept: Values
    undecided: Values
    sharing: float
    expected: Values | None = None

    def by_chance(self) -> Values:
        """(U, B) pairs that permuted assignments keep."""
        return self.ruled + self.undecided * self.sharing if self.expected is None else self.expected

    def shuffled(self) -> Values:
        """(B,) share of the pairs that permuted assignments keep, by distance."""
        return np.asarray(self.by_chance().sum(axis=0) / self.pairs.sum(axis=0))


def mean_pairs(counts: Sequence[PairCounts], weights: Sequence[int]) -> PairCounts:
    """Pairs of a layer whose heads differ, mean over heads; those of a single part as they are.

    Args:
        counts: one for each part.
        weights: heads of each.
    """
    if len(counts) == 1:
        return counts[0]

    def mean(values: Sequence[Values | float]) -> Values:
        return np.asarray(np.average(np.asarray(values), axis=0, weights=weights))

    return PairCounts(
        counts[0].pairs,
        mean([one.ruled for one in counts]),
        mean([one.kept for one in counts]),
        mean([one.undecided for one in counts]),
        float(mean([one.sharing for one in counts])),
        mean([one.by_chance() for one in counts]),
    )


def count_pairs(membership: Ints, starts: Ints, bins: Bins, rule: PairRule, resampler: Resampler) -> PairCounts:
    """Count one layer's pairs, exactly.

    Args:
        membership: (T,) bit sets; starts: (T,) where each token's document begins.
        bins: ranges of distances, cut at the rule's reach.
        rule: of the mask.
        resampler: of the T tokens.
    """
    place = np.arange(membership.size)
    farthest, near = rule.farthest(place.size), rule.near(place - starts)
    pairs, local, sinks = _by_rule(place, starts, near, bins, rule, resampler)
    in_reach = bins.first <= farthest
    kept = local + np.where(in_reach, _shared_far(membership, starts, near, bins, resampler), 0.0)
    for sink in range(rule.num_sinks):
        key = starts + sink
        distance = place - key
        far = (distance > near) & (distance <= farthest)
        alone = far & ((membership & membership[np.minimum(key, place)]) == 0)
        kept += counts_by_distance(resampler, alone, distance, bins)
    undecided = np.where(in_reach, pairs - local - sinks, 0.0)
    return PairCounts(pairs, local + sinks, kept, undecided, shuffled_sharing(membership))


def counts_by_distance(resampler: Resampler, selected: NDArray[np.bool_], distance: Ints, bins: Bins) -> Values:
    """Selected tokens by unit and the bin of their distance.

    Args:
        resampler: of T tokens in U units.
        selected: (T,); distance: (T,) tokens.
        bins: B ranges of distances.

    Returns:
        (U, B).
    """
    cells = bins.first.size
    codes = np.searchsorted(bins.first, np.maximum(distance, 0), side="right") - 1
    return resampler.tally(codes, cells, selected.astype(np.float64))


def _by_rule(
    place: Ints, starts: Ints, near: Ints, bins: Bins, rule: PairRule, resampler: Resampler
) -> tuple[Values, Values, Values]:
    """(U, B) all pairs, those within the window, and those with a sink beyond it."""
    zero = np.zeros_like(place)
    pairs, local, far_sinks = np.zeros((3, resampler.bins, bins.first.size))

    def tally(counts: Ints) -> Values:
        return resampler.tally(zero, 1, np.clip(counts, 0, None).astype(np.float64))[:, 0]

    back, farthest = place - starts, rule.farthest(place.size)
    for number, (first, last) in enumerate(zip(bins.first.tolist(), bins.last.tolist(), strict=True)):
        here = np.minimum(back, last)
        pairs[:, number] = tally(here - first + 1)
        local[:, number] = tally(np.minimum(here, near) - first + 1)
        if first <= farthest:  # sinks lie at distances back - s + 1 to back
            nearest = np.maximum(np.maximum(back - rule.num_sinks, near) + 1, first)
            far_sinks[:, number] = tally(here - nearest + 1)
    return pairs, local, far_sinks


def _shared_far(membership: Ints, starts: Ints, near: Ints, bins: Bins, resampler: Resampler) -> Values:
    """(U, B) pairs that share a group, beyond the window."""
    signatures, code = np.unique(membership, return_inverse=True)
    meet = (signatures[:, None] & signatures[None, :]) != 0
    shared = np.zeros((resampler.bins, bins.first.size))
    step = max(1, TABLE_ENTRIES // (membership.size + 1))
    for start in range(0, signatures.size, step):
        rows = meet[start : start + step]
        table = np.zeros((rows.shape[0], membership.size + 1), dtype=np.int32)
        np.cumsum(rows[:, code], axis=1, dtype=np.int32, out=table[:, 1:])
        flat = table.ravel()
        queries = np.flatnonzero((code >= start) & (code < start + step))
        base = (code[queries] - start) * table.shape[1]
        units, begin = resampler.of_token[queries], starts[queries]
        for number, (first, last) in enumerate(zip(bins.first.tolist(), bins.last.tolist(), strict=True)):
            high = np.maximum(queries - np.maximum(first, near[queries] + 1) + 1, begin)
            low = np.minimum(np.maximum(queries - last, begin), high)
            counts = flat[base + high] - flat[base + low]
            shared[:, number] += np.bincount(units, counts, minlength=resampler.bins)
    return shared
