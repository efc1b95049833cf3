"""Pairs that changes made by hand add and drop -> the payload of the page."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from focus_explorer.views.payloads.what_if import ChangedPairsPayload
from focus_explorer.views.run import encode


def changed_pairs(layer: int, size: int, counts: NDArray[np.float64], num_tokens: int) -> ChangedPairsPayload:
    """Pairs that one layer gains and loses.

    Args:
        layer: layer number.
        size: tokens per block side.
        counts: (2, N, N) gained and lost pairs, mean over heads.
        num_tokens: T.
    """
    rows = np.minimum(size, num_tokens - size * np.arange(counts.shape[1]))
    pairs = np.outer(rows, rows)
    np.fill_diagonal(pairs, rows * (rows + 1) // 2)
    lower = np.tril_indices(counts.shape[1])
    gained, lost = ((one / pairs)[lower].astype(np.float32) for one in counts)
    return {
        "layer": layer,
        "num_tokens": num_tokens,
        "block_size": size,
        "gained": float(counts[0].sum()),
        "lost": float(counts[1].sum()),
        "gained_shares": encode(gained),
        "lost_shares": encode(lost),
    }
