"""Exact pair counts by cause: in any rectangle of one layer's mask, in blocks of it, over the whole; and single pairs.

Memberships are (T,) int64 bit sets of tokens that are all real. Causes are those of rule.py; no T x T array is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_runtime.mask.rule import CAUSES, PairRule

EDGES_AT_ONCE = 1 << 21  # (query, cell edge) look-ups held at once
TABLE_ENTRIES = 1 << 24  # entries of the table of running counts held at once
ROWS_AT_ONCE = 256  # of two masks that are compared
CELLS_AT_ONCE = 1 << 22  # cells of the mask that kept pairs are looked for in at once

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def kinds_of(membership: Ints) -> tuple[Ints, Bools]:
    """The kind of each token's membership, (T,) from 0 to S - 1, and which of the S kinds share a group, (S, S)."""
    signatures, code = np.unique(membership, return_inverse=True)
    return code, (signatures[:, None] & signatures[None, :]) != 0


def count_tile(membership: Ints, rows: tuple[int, int], keys: tuple[int, int], rule: PairRule, block_size: int) -> Ints:
    """Exact pair counts by cause in one rectangle of the mask.

    Args:
        rows, keys: first and one past the last query and key, within 0 to T.
        block_size: tokens per cell side; 1 gives single pairs.

    Returns:
        (5, R, C) int64 in the order of `CAUSES`; nothing is counted above the diagonal.
    """
    starts, edges = np.arange(rows[0], rows[1], block_size), np.append(np.arange(*keys, block_size), keys[1])
    code, meet = kinds_of(membership)
    counts = np.zeros((len(CAUSES), starts.size, edges.size - 1), dtype=np.int64)
    width = keys[1] - keys[0]
    step = EDGES_AT_ONCE // edges.size
    if len(meet) * width > TABLE_ENTRIES:
        step = min(step, TABLE_ENTRIES // width)
    step = max(1, step // block_size) * block_size
    for first in range(rows[0], rows[1], step):
        queries = np.arange(first, min(first + step, rows[1]))
        cells = slice((first - rows[0]) // block_size, -(-(queries[-1] + 1 - rows[0]) // block_size))
        counts[:, cells] = _causes_of_rows(queries, edges, code, meet, rule, block_size)
    return counts


def _causes_of_rows(queries: Ints, edges: Ints, code: Ints, meet: Bools, rule: PairRule, block_size: int) -> Ints:
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
        running = (ends, table.ravel()[ends + base])
        keys, shared = (np.diff(np.add.reduceat(part, blocks, axis=0, dtype=np.int64), axis=1) for part in running)
        return keys, shared

    first, near = np.maximum(0, queries - rule.farthest(code.size)), np.maximum(0, rule.nearest_far(queries))
    pairs = between(np.zeros_like(queries), queries + 1)[0]
    shared = between(first, queries + 1)[1]
    local, both = between(near, queries + 1)
    sinks, sinks_shared = between(first, np.minimum(rule.num_sinks, near))
    return by_cause(pairs, local, shared, both, sinks - sinks_shared)


def by_cause(pairs: Ints, local: Ints, shared: Ints, both: Ints, sink_only: Ints) -> Ints:
    """Counts in the order of `CAUSES`, of all pairs, near ones, those with a shared group, both, and sinks alone."""
    group_only = shared - both
    return np.stack([local - both, group_only, both, sink_only, pairs - local - group_only - sink_only])


def shared_from(membership: Ints, distances: Ints) -> Ints:
    """Pairs with a shared group that lie at least so far apart, for each of some distances."""
    return shared_before(membership, (np.arange(membership.size) - distances[:, None] + 1).clip(0))


def shared_before(membership: Ints, ends: Ints) -> Ints:
    """Pairs with a shared group of all queries with the keys before some ends, (E, T): one past each query's last."""
    total = membership.size
    code, meet = kinds_of(membership)
    pairs = np.zeros(len(ends), dtype=np.int64)
    step = max(1, TABLE_ENTRIES // total)
    for start in range(0, len(meet), step):
        table = np.zeros((min(step, len(meet) - start), total + 1), dtype=np.int32)
        np.cumsum(meet[start : start + step][:, code], axis=1, dtype=np.int32, out=table[:, 1:])
        queries = np.flatnonzero((code >= start) & (code < start + step))
        own = code[queries] - start
        for number, own_ends in enumerate(ends):
            pairs[number] += table[own, own_ends[queries]].sum(dtype=np.int64)
    return pairs


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Pair counts by cause in square blocks: (5, N, N) in the order of `CAUSES`, zero above the diagonal."""

    block_size: int
    counts: Ints

    def total(self, cause: str) -> int:
        """Number of pairs with one cause."""
        return int(self.counts[CAUSES.index(cause)].sum())

    @property
    def retained_pairs(self) -> float:
        """Allowed pairs over all causal pairs, between 0 and 1."""
        return 1.0 - self.total("dropped") / int(self.counts.sum())


def _add_pairs(target: Ints, i: Ints, j: Ints, size: int) -> None:
    num = target.shape[0]
    target += np.bincount((i // size) * num + j // size, minlength=num * num).reshape(num, num)


def _shared_counts(membership: Ints, size: int, num: int, farthest: int) -> Ints:
    """Causal pairs with a shared group per block, none farther apart than `farthest`: O(N^2 S + T b), never T^2."""
    code, meet = kinds_of(membership)
    tokens = np.arange(membership.size)
    histogram = np.bincount((tokens // size) * len(meet) + code, minlength=num * len(meet))
    histogram = histogram.reshape(num, len(meet)).astype(np.float64)  # exact below 2^53
    apart = np.subtract.outer(np.arange(num), np.arange(num))
    whole = (apart > 0) & ((apart + 1) * size - 1 <= farthest)
    shared = np.where(whole, np.rint(histogram @ meet.astype(np.float64) @ histogram.T), 0).astype(np.int64)
    beyond = max(size, int(apart[whole].max(initial=0)) * size + 1)  # distances from here on are in blocks cut by reach
    for distance in (*range(min(size, farthest + 1)), *range(beyond, farthest + 1)):
        i = tokens[distance:]
        i = i[~whole[i // size, (i - distance) // size]]
        hit = i[(membership[i] & membership[i - distance]) != 0]
        _add_pairs(shared, hit, hit - distance, size)
    return shared


def count_pairs(
    membership: Ints, rule: PairRule, *, block_size: int | None = None, max_blocks: int = 128
) -> BlockCounts:
    """Exact pair counts by cause for one layer without a T x T array, in O(T (w + s + b)) time, or O(T (N + S)) where
    the window grows: N blocks a side, S different memberships. The default block is the smallest that gives at most
    `max_blocks`.
    """
    membership = np.ascontiguousarray(membership, dtype=np.int64)
    total = membership.size
    size = block_size or max(1, -(-total // max_blocks))
    num = max(1, -(-total // size))
    if rule.grows:
        return BlockCounts(size, count_tile(membership, (0, total), (0, total), rule, size))
    tokens = np.arange(total)
    farthest, near = rule.farthest(total), rule.near(0)
    local, both, sink_only = (np.zeros((num, num), dtype=np.int64) for _ in range(3))
    for distance in range(min(near, total - 1) + 1):
        i = tokens[distance:]
        hit = (membership[i] & membership[i - distance]) != 0
        _add_pairs(local, i, i - distance, size)
        _add_pairs(both, i[hit], i[hit] - distance, size)
    for j in range(min(rule.num_sinks, total)):
        i = tokens[j + near + 1 : j + farthest + 1]
        far = i[(membership[i] & membership[j]) == 0]
        _add_pairs(sink_only, far, np.full_like(far, j), size)
    rows = np.minimum(tokens[:num] * size + size, total) - tokens[:num] * size
    causal = np.tril(np.outer(rows, rows), -1) + np.diag(rows * (rows + 1) // 2)
    shared = _shared_counts(membership, size, num, farthest)
    return BlockCounts(size, by_cause(causal, local, shared, both, sink_only))


def pair_totals(membership: Ints, rules: Sequence[PairRule]) -> Ints:
    """Exact pair counts over the whole text of all layers at once, (L, 5) in the order of `CAUSES`."""
    counts = np.zeros((membership.shape[0], len(CAUSES)), dtype=np.int64)
    for rule in set(rules):
        layers = [number for number, own in enumerate(rules) if own == rule]
        counts[layers] = _totals(membership[layers], rule)
    return counts


def _totals(membership: Ints, rule: PairRule) -> Ints:
    layers, total = membership.shape
    farthest = rule.farthest(total)
    alone = np.count_nonzero(membership, axis=1)  # tokens that share a group with themselves: all that have one
    shared = (np.array([pairs_sharing(row) for row in membership], dtype=np.int64) + alone) // 2
    if farthest < total - 1:
        shared -= np.array([shared_from(row, np.array([farthest + 1]))[0] for row in membership])
    small = _narrow(membership)
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
    pairs, local = np.full(layers, total * (total + 1) // 2), np.full(layers, near)
    return by_cause(pairs, local, shared, both, sinks).T


def pairs_sharing(membership: Ints) -> int:
    """Ordered pairs, each token with itself included, that share a group: from counts of each kind, never T^2."""
    code, meet = kinds_of(membership)
    counts = np.bincount(code)
    return int(counts @ meet @ counts)


def gained_and_lost(before: Ints, rule_before: PairRule, after: Ints, rule_after: PairRule, block_size: int) -> Ints:
    """Pairs of `after` that `before` lacks, and the reverse, (2, N, N) in blocks of queries by keys, in O(T^2) time
    without a T x T array.
    """
    total = before.size
    num = max(1, -(-total // block_size))
    counts = np.zeros((2, num, num), dtype=np.int64)
    edges = np.arange(0, total, block_size)
    step = max(1, ROWS_AT_ONCE // block_size) * block_size
    for first in range(0, total, step):
        rows = np.arange(first, min(first + step, total))
        old, new = (
            _mask_of_rows(membership, rows, np.arange(total), rule)[0]
            for membership, rule in ((before, rule_before), (after, rule_after))
        )
        for kind, pairs in enumerate((new & ~old, old & ~new)):
            of_rows = np.add.reduceat(pairs.astype(np.int64), edges, axis=1)
            own = slice(first // block_size, -(-(rows[-1] + 1) // block_size))
            counts[kind, own] = np.add.reduceat(of_rows, np.arange(0, rows.size, block_size), axis=0)
    return counts


def _mask_of_rows(
    membership: NDArray[np.integer], rows: Ints, keys: Ints, rule: PairRule
) -> tuple[Bools, Bools, Bools]:
    """(R, K) each: pairs that the rule keeps, those near in the text, and those with a shared group."""
    distance = rows[:, None] - keys
    near = distance <= rule.near(rows)[:, None]
    shared = (membership[rows][:, None] & membership[keys]) != 0
    kept = (near | shared | (keys < rule.num_sinks)) & (distance >= 0) & (distance <= rule.farthest(membership.size))
    return kept, near, shared


@dataclass(frozen=True, slots=True)
class KeptPairs:
    """Positions of N kept pairs, by query and then by key, and the places of their causes in `CAUSES`."""

    query: NDArray[np.int32]
    key: NDArray[np.int32]
    cause: NDArray[np.int8]


def kept_pairs(membership: Ints, rule: PairRule, rows: tuple[int, int]) -> Iterator[KeptPairs]:
    """Every kept pair of queries `rows[0]` up to `rows[1]`, in pieces of whole rows of about `CELLS_AT_ONCE` cells."""
    causes = ("sink_only", "local_only", "group_only", "local_and_group")  # by 1 for near plus 2 for shared
    codes = np.array([CAUSES.index(cause) for cause in causes], dtype=np.int8)
    bits, first = _narrow(membership), rows[0]
    while first < rows[1]:
        start = max(0, first - rule.farthest(membership.size))
        width = first - start  # the rectangle is this plus the number of its rows wide
        most = (math.isqrt(width * width + 4 * CELLS_AT_ONCE) - width) // 2
        last = min(rows[1], first + max(1, most))
        kept, near, shared = _mask_of_rows(bits, np.arange(first, last), np.arange(start, last), rule)
        row, column = np.nonzero(kept)
        cause = codes[near[row, column] + 2 * shared[row, column]]
        yield KeptPairs((row + first).astype(np.int32), (column + start).astype(np.int32), cause)
        first = last


def _narrow(membership: Ints) -> NDArray[np.integer]:
    """The same bit sets in as few bytes as they need: comparing them is most of the work."""
    largest = int(membership.max(initial=0))
    kinds: tuple[type[np.integer], ...] = (np.uint8, np.int16, np.int32, np.int64)
    return membership.astype(next(kind for kind in kinds if largest <= np.iinfo(kind).max))
