"""The single pairs that a layer's mask keeps, with their causes, a few rows of the mask at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_runtime.mask.rule import CAUSES, PairRule

CELLS_AT_ONCE = 1 << 22  # cells of the mask looked at at once, one byte each and a few for every kept pair
NEAR, SHARED = 1, 2
_CODES = np.zeros(4, dtype=np.int8)  # by NEAR and SHARED: place in CAUSES
_CODES[0] = CAUSES.index("sink_only")
_CODES[NEAR] = CAUSES.index("local_only")
_CODES[SHARED] = CAUSES.index("group_only")
_CODES[NEAR + SHARED] = CAUSES.index("local_and_group")


@dataclass(frozen=True, slots=True)
class KeptPairs:
    """N kept pairs, by query and then by key.

    Attributes:
        query, key: (N,) int32 positions.
        cause: (N,) int8 places in `CAUSES`.
    """

    query: NDArray[np.int32]
    key: NDArray[np.int32]
    cause: NDArray[np.int8]


def kept_pairs(membership: NDArray[np.int64], rule: PairRule, rows: tuple[int, int]) -> Iterator[KeptPairs]:
    """Every kept pair of some queries, in pieces of whole rows.

    Memory: about `CELLS_AT_ONCE` cells, however long the text.

    Args:
        membership: (T,) int64 bit sets.
        rule: window, sinks and the layer's own sliding window.
        rows: first and one past the last query, within 0 to T.
    """
    total = membership.size
    bits = _narrow(membership)
    farthest = rule.farthest(total)
    first = rows[0]
    while first < rows[1]:
        start = max(0, first - farthest)
        height = _rows_at_once(first - start)
        last = min(rows[1], first + height)
        query, key = np.arange(first, last)[:, None], np.arange(start, last)[None, :]
        distance = (query - key).astype(np.int32)
        near, shared = distance <= rule.near(query), (bits[first:last, None] & bits[None, start:last]) != 0
        kept = (distance >= 0) & (distance <= farthest) & (near | shared | (key < rule.num_sinks))
        row, column = np.nonzero(kept)
        code = _CODES[near[row, column] * NEAR + shared[row, column] * SHARED]
        yield KeptPairs((row + first).astype(np.int32), (column + start).astype(np.int32), code)
        first = last


def _rows_at_once(width: int) -> int:
    """The most rows of at most `CELLS_AT_ONCE` cells; their rectangle is `width` plus their number wide."""
    return max(1, (math.isqrt(width * width + 4 * CELLS_AT_ONCE) - width) // 2)


def _narrow(membership: NDArray[np.int64]) -> NDArray[np.integer]:
    """The same bit sets in as few bytes as they need: comparing them is most of the work."""
    largest = int(membership.max(initial=0))
    kinds: tuple[type[np.integer], ...] = (np.uint8, np.int16, np.int32)
    return membership.astype(next((kind for kind in kinds if largest <= np.iinfo(kind).max), np.int64))
