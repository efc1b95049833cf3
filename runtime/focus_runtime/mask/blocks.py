"""Pairs of one layer counted by cause in blocks of the mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_runtime.mask.rule import CAUSES, PairRule
from focus_runtime.mask.tiles import count_tile


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Pair counts by cause in square blocks of the causal triangle.

    Attributes:
        block_size: tokens per block side.
        counts: (5, N, N) int64 in the order of `CAUSES`; zero above the diagonal.
        num_tokens: T, so that the whole adds up to T(T+1)/2.
    """

    block_size: int
    counts: NDArray[np.int64]
    num_tokens: int

    def total(self, cause: str) -> int:
        """Number of pairs with one cause."""
        return int(self.counts[CAUSES.index(cause)].sum())

    @property
    def retained_pairs(self) -> float:
        """Allowed pairs over all causal pairs, between 0 and 1."""
        return 1.0 - self.total("dropped") / (self.num_tokens * (self.num_tokens + 1) // 2)


def _add_pairs(target: NDArray[np.int64], i: NDArray[np.int64], j: NDArray[np.int64], size: int) -> None:
    num = target.shape[0]
    target += np.bincount((i // size) * num + j // size, minlength=num * num).reshape(num, num)


def _shared_counts(membership: NDArray[np.int64], size: int, num: int, farthest: int) -> NDArray[np.int64]:
    """Causal pairs with a shared group per block, none of them farther apart than `farthest`.

    Blocks wholly in reach are counted through signature histograms, the diagonal ones and those that the reach cuts one
    distance at a time: O(N^2 S + T b), never T^2.
    """
    signatures, code = np.unique(membership, return_inverse=True)
    tokens = np.arange(membership.size)
    histogram = np.bincount((tokens // size) * signatures.size + code, minlength=num * signatures.size)
    histogram = histogram.reshape(num, signatures.size).astype(np.float64)  # exact below 2^53
    meet = ((signatures[:, None] & signatures[None, :]) != 0).astype(np.float64)
    apart = np.subtract.outer(np.arange(num), np.arange(num))
    whole = (apart > 0) & ((apart + 1) * size - 1 <= farthest)
    shared = np.where(whole, np.rint(histogram @ meet @ histogram.T), 0).astype(np.int64)
    beyond = max(size, int(apart[whole].max(initial=0)) * size + 1)  # distances from here on are in blocks cut by reach
    for distance in (*range(min(size, farthest + 1)), *range(beyond, farthest + 1)):
        i = tokens[distance:]
        i = i[~whole[i // size, (i - distance) // size]]
        hit = i[(membership[i] & membership[i - distance]) != 0]
        _add_pairs(shared, hit, hit - distance, size)
    return shared


def count_pairs(
    membership: NDArray[np.int64], rule: PairRule, *, block_size: int | None = None, max_blocks: int = 128
) -> BlockCounts:
    """Exact pair counts by cause for one layer without a T x T array, in O(T (w + s + b)) time, or O(T (N + S)) where
    the window grows: N blocks a side, S different memberships.

    Args:
        membership: (T,) int64 bit sets, all tokens real.
        rule: window, sinks and the layer's own sliding window.
        block_size: tokens per block; by default the smallest that needs at most `max_blocks` blocks a side.
        max_blocks: used when block_size is None.
    """
    membership = np.ascontiguousarray(membership, dtype=np.int64)
    total = membership.size
    size = block_size or max(1, -(-total // max_blocks))
    num = max(1, -(-total // size))
    if rule.grows:
        return BlockCounts(size, count_tile(membership, (0, total), (0, total), rule, size), total)
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
    group_only = _shared_counts(membership, size, num, farthest) - both
    local_only = local - both
    dropped = causal - local - group_only - sink_only
    return BlockCounts(size, np.stack([local_only, group_only, both, sink_only, dropped]), total)
