"""Which group of one run is which group of another, and how far the two agree. It knows nothing of databases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_explorer.statistics.group_content import adjusted_rand, contingency

Groups = NDArray[np.int64] | NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Aligned:
    """Groups of a second run in the names of the first, for one layer.

    Attributes:
        names: for each group of the second run, the group of the first it is matched with, -1 where none is left.
        overlap: share of tokens whose groups are matched with each other; at best 1.
        rand: adjusted Rand index: 1 for the same partition, about 0 for two that agree no more than by chance.
    """

    names: list[int]
    overlap: float
    rand: float


def align(first: Groups, second: Groups, num_first: int, num_second: int) -> Aligned:
    """Match groups one to one so that as many tokens as possible lie in matched groups (the Hungarian method).

    Args:
        first, second: (T,) group of every token in each run.
        num_first, num_second: how many groups each run has.
    """
    from scipy.optimize import linear_sum_assignment

    table = contingency(first, second, (num_first, num_second))
    rows, columns = linear_sum_assignment(table, maximize=True)
    names = [-1] * num_second
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        names[column] = row
    return Aligned(names, float(table[rows, columns].sum() / first.size), adjusted_rand(table))
