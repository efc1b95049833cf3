"""Allowed pairs of one layer counted by distance; and distant pairs, which the groups alone decide.

Distant pairs are those in a layer's reach, beyond a head's window, whose key is none of the first tokens (sinks). The
share of them that is kept is, wherever it stands for a layer, the mean over the heads that have some; heads with full
attention keep all of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_runtime.mask.counts import Ints, by_cause, pairs_sharing, shared_before, shared_from
from focus_runtime.mask.rule import CAUSES, PairRule


def distant_pairs(rule: PairRule, num_tokens: int) -> int:
    """Distant pairs of one head in a text of so many tokens."""
    queries = np.arange(num_tokens, dtype=np.int64)
    first = np.maximum(rule.num_sinks, queries - rule.farthest(num_tokens))
    return int((rule.nearest_far(queries) - first).clip(0).sum())


def distant_kept(dropped: float, rule: PairRule, num_tokens: int) -> float | None:
    """Share of a head's distant pairs that it keeps, None where it has none; `dropped` counts unreached pairs too."""
    pairs = distant_pairs(rule, num_tokens)
    return 1.0 - (dropped - rule.unreached(num_tokens)) / pairs if pairs else None


def mean_of_some(values: Sequence[float | None], weights: Sequence[float] | None = None) -> float | None:
    """Mean of the values that are neither None nor NaN; None where there is none."""
    pairs = zip(values, [1.0] * len(values) if weights is None else weights, strict=True)
    some = [(value, weight) for value, weight in pairs if value is not None and not math.isnan(value)]
    return sum(value * weight for value, weight in some) / sum(weight for _, weight in some) if some else None


@dataclass(frozen=True, slots=True)
class DistanceCounts:
    """Pairs of one layer by distance, in bins.

    Attributes:
        first, last: (B,) smallest and largest distance i - j of each bin.
        counts: (5, B) int64 in the order of `CAUSES`.
        sharing: see `shuffled_sharing`; of a layer whose heads differ, mean over those with distant pairs.
        shuffled: (B,) expected share of pairs kept under a random permutation of the groups.
        window_only: (B,) share of pairs kept by window and sinks alone.
        distant_kept: share of the distant pairs that is kept, whose expectation is `sharing`; None without any.
    """

    first: Ints
    last: Ints
    counts: Ints
    sharing: float
    shuffled: NDArray[np.float64]
    window_only: NDArray[np.float64]
    distant_kept: float | None


def distance_bins(num_tokens: int, rules: Sequence[PairRule] = ()) -> tuple[Ints, Ints]:
    """First and last distance of bins over 0 to T - 1: 0, then half octaves, cut at the rules' windows and reaches."""
    octaves = np.arange(0, np.log2(max(2, num_tokens)) + 1, 0.5)
    borders = [(rule.near(0), rule.near(num_tokens), rule.farthest(num_tokens)) for rule in rules]
    cuts = [distance + 1 for of_rule in borders for distance in of_rule]
    starts = np.unique([0, *np.rint(2.0**octaves), *cuts]).astype(np.int64)
    starts = starts[starts < num_tokens]
    return starts, np.append(starts[1:], num_tokens) - 1


def count_by_distance(membership: Ints, rule: PairRule, rules: Sequence[PairRule] = ()) -> DistanceCounts:
    """Exact pair counts by cause and distance in O(T (S + B)) time, S signatures."""
    total = membership.size
    first, last = distance_bins(total, rules)
    farthest, every = rule.farthest(total), np.arange(total)
    cuts = [min(rule.near(0) + 1, total - 1), min(rule.near(total) + 1, total - 1), min(farthest + 1, total - 1)]
    starts = np.unique(np.append(first, cuts))  # no stretch lies on both sides of the window, or of the reach
    stops = np.append(starts[1:], total)
    pairs = np.add.reduceat(total - every, starts)
    near, in_reach = stops - 1 <= rule.near(0), starts <= farthest
    first_near = np.maximum(0, rule.nearest_far(every))  # of every query
    local = np.where(near, pairs, 0)
    shared = np.where(in_reach, -np.diff(np.append(shared_from(membership, starts), 0)), 0)
    both = np.where(near, shared, 0)
    for number in np.flatnonzero(~near & (starts <= rule.near(total))):  # near to some queries only
        ends = np.stack([every - starts[number] + 1, np.maximum(every - stops[number] + 1, first_near)]).clip(0)
        ends[1] = np.minimum(ends[1], ends[0])
        local[number] = (ends[0] - ends[1]).sum()
        both[number] = -np.diff(shared_before(membership, ends))[0]
    sinks, sinks_shared = np.zeros((2, starts.size), dtype=np.int64)
    for j in range(min(rule.num_sinks, total)):
        far = every[int(np.searchsorted(first_near, j, "right")) : j + farthest + 1]
        for counted, those in ((sinks, far), (sinks_shared, far[(membership[far] & membership[j]) != 0])):
            counted += np.bincount(np.searchsorted(starts, those - j, "right") - 1, minlength=starts.size)
    counts = by_cause(pairs, local, shared, both, sinks - sinks_shared)
    sharing = shuffled_sharing(membership)
    by_rule = local + sinks
    undecided = np.where(in_reach, pairs - by_rule, 0)  # by window and sinks: the groups decide

    def binned(values: Any) -> Any:
        return np.add.reduceat(values, np.searchsorted(starts, first), axis=-1)

    return DistanceCounts(
        first,
        last,
        binned(counts),
        sharing,
        binned(by_rule + undecided * sharing) / binned(pairs),
        binned(by_rule) / binned(pairs),
        distant_kept(int(counts[CAUSES.index("dropped")].sum()), rule, total),
    )


def shuffled_sharing(membership: Ints) -> float:
    """Probability that two different tokens share a group when all tokens swap their groups at random.

    It is the same for every pair, so it is also the expected share of distant pairs, and of their attention, that such
    groups keep: the null of groups of the same sizes, without drawing any.
    """
    others = pairs_sharing(membership) - np.count_nonzero(membership)
    total = membership.size
    return float(others / (total * (total - 1))) if total > 1 else 1.0
