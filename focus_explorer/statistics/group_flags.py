"""Marks of groups whose size is out of balance: dead, starved, collapsed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STARVED_SHARE = 0.1  # of an even share


def group_flags(sizes: NDArray[np.int64]) -> list[list[str]]:
    """Marks of each group.

    `dead`: no tokens. `starved`: less than a tenth of an even share. `collapsed`: more than halfway between an even
    share and everything.

    Args:
        sizes: (K,) tokens of one layer's groups.
    """
    total, groups = int(sizes.sum()), len(sizes)
    flags: list[list[str]] = []
    for size in sizes.tolist():
        share = size / total if total else 0.0
        conditions = {
            "dead": size == 0,
            "starved": 0 < share < STARVED_SHARE / groups,
            "collapsed": groups > 1 and share > (1 + 1 / groups) / 2,
        }
        flags.append([name for name, holds in conditions.items() if holds])
    return flags
