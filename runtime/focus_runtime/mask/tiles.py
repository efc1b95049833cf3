"""Exact pair counts by cause in any rectangle of one layer's mask.

Causes are those of `focus_runtime.mask.rule`, whose pairs these are; no T x T array is made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from focus_runtime.mask.rule import CAUSES, PairRule

EDGES_AT_ONCE = 1 << 21  # (query, cell edge) look-ups held at once
TABLE_ENTRIES = 1 << 24  # entries of the table of running counts held at once

Ints = NDArray[np.int64]


def count_tile(membership: Ints, rows: tuple[int, int], keys: tuple[int, int], rule: PairRule, block_size: int) -> Ints:
    """Exact pair counts by cause in one rectangle of the mask.

    Args:
        membership: (T,) int64 bit sets.
        rows, keys: first and one past the last query and key, within 0 to T.
        rule: window, sinks and the layer's own sliding window.
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
        counts[:, cells] = _causes_of_rows(queries, edges, code, meet, rule, block_size)
    return counts


def _causes_of_rows(
    queries: Ints, edges: Ints, code: Ints, meet: NDArray[np.bool_], rule: PairRule, block_size: int
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
        running = (ends, table.ravel()[ends + base])
        keys, shared = (np.diff(np.add.reduceat(part, blocks, axis=0, dtype=np.int64), axis=1) for part in running)
        return keys, shared

    first, near = np.maximum(0, queries - rule.farthest(code.size)), np.maximum(0, rule.nearest_far(queries))
    pairs = between(np.zeros_like(queries), queries + 1)[0]
    shared = between(first, queries + 1)[1]
    local, both = between(near, queries + 1)
    sinks, sinks_shared = between(first, np.minimum(rule.num_sinks, near))
    sink_only, group_only = sinks - sinks_shared, shared - both
    counts = {"local_only": local - both, "group_only": group_only, "local_and_group": both, "sink_only": sink_only}
    counts["dropped"] = pairs - sum(counts.values())
    return np.stack([counts[cause] for cause in CAUSES])
