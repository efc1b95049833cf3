"""Pairs that one mask of a text allows and another does not, counted in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from focus_runtime.mask.rule import PairRule

ROWS_AT_ONCE = 256


def gained_and_lost(
    before: NDArray[np.int64], rule_before: PairRule, after: NDArray[np.int64], rule_after: PairRule, block_size: int
) -> NDArray[np.int64]:
    """Pairs of `after` that `before` lacks, and the reverse, in O(T^2) time without a T x T array.

    Args:
        before, after: (T,) int64 bit sets.
        rule_before, rule_after: window, sinks and the layer's own sliding window.
        block_size: tokens per block side.

    Returns:
        (2, N, N): gained and lost pairs in blocks of queries by keys.
    """
    total = before.size
    num = max(1, -(-total // block_size))
    counts = np.zeros((2, num, num), dtype=np.int64)
    edges = np.arange(0, total, block_size)
    step = max(1, ROWS_AT_ONCE // block_size) * block_size
    for first in range(0, total, step):
        rows = np.arange(first, min(first + step, total))
        old, new = _allowed(before, rows, rule_before), _allowed(after, rows, rule_after)
        for kind, pairs in enumerate((new & ~old, old & ~new)):
            of_rows = np.add.reduceat(pairs.astype(np.int64), edges, axis=1)
            own = slice(first // block_size, -(-(rows[-1] + 1) // block_size))
            counts[kind, own] = np.add.reduceat(of_rows, np.arange(0, rows.size, block_size), axis=0)
    return counts


def _allowed(membership: NDArray[np.int64], rows: NDArray[np.int64], rule: PairRule) -> NDArray[np.bool_]:
    """(R, T) the hard mask of some queries, see rule.py."""
    tokens = np.arange(membership.size)
    distance = rows[:, None] - tokens
    shared = (membership[rows][:, None] & membership) != 0
    allowed = shared | (distance <= rule.near(rows)[:, None]) | (tokens < rule.num_sinks)
    return allowed & (distance >= 0) & (distance <= rule.farthest(membership.size))
