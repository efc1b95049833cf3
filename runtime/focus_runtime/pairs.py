"""One layer's pairs looked at closely: any rectangle of the mask, and pairs by distance. It knows nothing of kernels.

Causes are those of `focus_runtime.mask`, whose pairs these are; no T x T array is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_runtime.mask import CAUSES

TABLE_ENTRIES = 1 << 24  # entries of the table of running counts held at once
EDGES_AT_ONCE = 1 << 21  # (query, cell edge) look-ups held at once

Ints = NDArray[np.int64]


def count_tile(
    membership: Ints, rows: tuple[int, int], keys: tuple[int, int], window: int, num_sinks: int, block_size: int
) -> Ints:
    """Exact pair counts by cause in one rectangle of the mask.

    Args:
        membership: (T,) int64 bit sets.
        rows, keys: first and one past the last query and key, within 0 to T.
        block_size: tokens per cell side; 1 gives single pairs.

    Returns:
        (5, R, C) int64 in the order of `CAUSES`; nothing is counted above the diagonal.
    """
    starts, edges = np.arange(rows[0], rows[1], block_size), np.append(np.arange(*keys, block_size), keys[1])
    signatures, code = np.unique(membership, return_inverse=True)
    meet = (signatures[:, None] & signatures[None, :]) != 0
    counts = np.zeros((len(CAUSES), starts.size, edges.size - 1), dtype=np.int64)
    width = keys[1] - keys[0]
    step = EDGES_AT_ONCE // edges.size
    if signatures.size * width > TABLE_ENTRIES:
        step = min(step, TABLE_ENTRIES // width)
    step = max(1, step // block_size) * block_size
    for first in range(rows[0], rows[1], step):
        queries = np.arange(first, min(first + step, rows[1]))
        cells = slice((first - rows[0]) // block_size, -(-(queries[-1] + 1 - rows[0]) // block_size))
        counts[:, cells] = _causes_of_rows(queries, edges, code, meet, window, num_sinks, block_size)
    return counts


def _causes_of_rows(
    queries: Ints, edges: Ints, code: Ints, meet: NDArray[np.bool_], window: int, num_sinks: int, block_size: int
) -> Ints:
    """(5, blocks of rows, cells): running counts of keys that share a group, read off at each row's borders."""
    present, own = np.unique(code[queries], return_inverse=True)
    shares = meet[present][:, code[edges[0] : edges[-1]]]
    table = np.zeros((present.size, shares.shape[1] + 1), dtype=np.int32)
    np.cumsum(shares, axis=1, dtype=np.int32, out=table[:, 1:])

    base = (own * table.shape[1] - edges[0])[:, None]
    blocks = np.arange(0, queries.size, block_size)

    def between(low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Keys from `low` up to `high` of each row in every cell: how many, and how many share a group."""
        low, high = low.clip(edges[0], edges[-1]), high.clip(edges[0], edges[-1])
        ends = np.minimum(np.maximum(edges, low[:, None]), np.maximum(low, high)[:, None])
        found = (ends, table.ravel()[ends + base])
        keys, shared = (np.diff(np.add.reduceat(part, blocks, axis=0, dtype=np.int64), axis=1) for part in found)
        return keys, shared

    zero, near = np.zeros_like(queries), np.maximum(0, queries - window)
    pairs, shared = between(zero, queries + 1)
    local, both = between(near, queries + 1)
    sinks, sinks_shared = between(zero, np.minimum(num_sinks, near))
    sink_only, group_only = sinks - sinks_shared, shared - both
    found = {"local_only": local - both, "group_only": group_only, "local_and_group": both, "sink_only": sink_only}
    found["dropped"] = pairs - sum(found.values())
    return np.stack([found[cause] for cause in CAUSES])


@dataclass(frozen=True, slots=True)
class DistanceCounts:
    """Pairs of one layer by distance, in bins.

    Attributes:
        first, last: (B,) smallest and largest distance i - j of each bin.
        counts: (5, B) int64 in the order of `CAUSES`.
        sharing: probability that two tokens share a group once the groups are dealt out again at random.
        shuffled: (B,) expected share of pairs kept under groups of the same sizes dealt out at random.
        window_only: (B,) share of pairs kept by window and sinks alone.
        beyond, beyond_shared: pairs beyond the window whose key is no sink, and those of them that share a group: what
            `sharing` is the expectation of.
    """

    first: Ints
    last: Ints
    counts: Ints
    sharing: float
    shuffled: NDArray[np.float64]
    window_only: NDArray[np.float64]
    beyond: int
    beyond_shared: int


def distance_bins(num_tokens: int, per_octave: int = 2) -> tuple[Ints, Ints]:
    """First and last distance of log-spaced bins over 0 to T - 1; distance 0 has a bin of its own."""
    octaves = np.arange(0, np.log2(max(2, num_tokens)) + 1, 1 / per_octave)
    starts = np.unique(np.append(0, np.rint(2.0**octaves).astype(np.int64)))
    starts = starts[starts < num_tokens]
    return starts, np.append(starts[1:], num_tokens) - 1


def count_by_distance(membership: Ints, window: int, num_sinks: int) -> DistanceCounts:
    """Exact pair counts by cause and distance in O(T (S + B)) time, S signatures."""
    total = membership.size
    first, last = distance_bins(total)
    starts = np.unique(np.append(first, min(window + 1, total - 1)))  # no stretch lies on both sides of the window
    every = np.arange(total)
    pairs = np.add.reduceat(total - every, starts)
    near = starts <= window
    sinks = np.where(near, 0, np.add.reduceat(np.minimum(num_sinks, total - every), starts))
    shared = -np.diff(np.append(_shared_from(membership, starts), 0))
    sinks_shared = np.zeros(starts.size, dtype=np.int64)
    for j in range(min(num_sinks, total)):
        far = every[j + window + 1 :]
        hit = far[(membership[far] & membership[j]) != 0] - j
        sinks_shared += np.bincount(np.searchsorted(starts, hit, "right") - 1, minlength=starts.size)
    both, sink_only = np.where(near, shared, 0), sinks - sinks_shared
    found = {"local_only": np.where(near, pairs, 0) - both, "group_only": shared - both, "local_and_group": both,
             "sink_only": sink_only}  # fmt: skip
    found["dropped"] = pairs - sum(found.values())
    sharing = shuffled_sharing(membership)
    by_rule = np.where(near, pairs, sinks)

    def binned(values: Any) -> Any:
        return np.add.reduceat(values, np.searchsorted(starts, first), axis=-1)

    return DistanceCounts(
        first, last, binned(np.stack([found[cause] for cause in CAUSES])), sharing,
        binned(by_rule + (pairs - by_rule) * sharing) / binned(pairs), binned(by_rule) / binned(pairs),
        int((pairs - by_rule).sum()), int((found["group_only"] - sinks_shared).sum()),
    )  # fmt: skip


def _shared_from(membership: Ints, distances: Ints) -> Ints:
    """Pairs with a shared group that lie at least so far apart, for each of some distances."""
    total = membership.size
    signatures, code = np.unique(membership, return_inverse=True)
    meet = (signatures[:, None] & signatures[None, :]) != 0
    found = np.zeros(distances.size, dtype=np.int64)
    step = max(1, TABLE_ENTRIES // total)
    for start in range(0, signatures.size, step):
        table = np.zeros((min(step, signatures.size - start), total + 1), dtype=np.int32)
        np.cumsum(meet[start : start + step][:, code], axis=1, dtype=np.int32, out=table[:, 1:])
        queries = np.flatnonzero((code >= start) & (code < start + step))
        own = code[queries] - start
        for number, distance in enumerate(distances):
            late = queries >= distance
            found[number] += table[own[late], queries[late] - distance + 1].sum(dtype=np.int64)
    return found


def shuffled_sharing(membership: Ints) -> float:
    """Probability that two different tokens share a group when all tokens swap their groups at random.

    It is the same for every pair, so it is also the expected share of distant pairs, and of their attention, that such
    groups keep: the null of groups of the same sizes, without drawing any.
    """
    signatures, uses = np.unique(membership, return_counts=True)
    meet = ((signatures[:, None] & signatures[None, :]) != 0).astype(np.float64)
    ordered = float(uses @ meet @ uses) - float(uses[signatures != 0].sum())
    total = membership.size
    return ordered / (total * (total - 1)) if total > 1 else 1.0
