"""Which group of one run is which group of another, and how far the two agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_runtime.measure.contingency import Table, adjusted_rand, contingency

Groups = NDArray[np.int64] | NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Aligned:
    """Groups of a second run in the names of the first, for one layer.

    Attributes:
        names: for each group of the second run, the group of the first it is matched with, -1 where none is left.
        overlap: share of tokens whose groups are matched with each other; at best 1.
        rand: adjusted Rand index: 1 for the same partition, about 0 for unrelated ones.
    """

    names: list[int]
    overlap: float
    rand: float


def matched_groups(table: Table) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of a contingency table matched one to one so that they hold as many tokens as possible.

    The Hungarian method (Kuhn 1955).
    """
    from scipy.optimize import linear_sum_assignment  # importing scipy takes longer than the rest of this module

    rows, columns = linear_sum_assignment(table, maximize=True)
    return rows, columns


def align(first: Groups, second: Groups, num_first: int, num_second: int) -> Aligned:
    """Match groups one to one so that as many tokens as possible lie in matched groups.

    Args:
        first, second: (T,) group of every token in each run.
        num_first, num_second: how many groups each run has.
    """
    table = contingency(first, second, (num_first, num_second))
    rows, columns = matched_groups(table)
    names = [-1] * num_second
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        names[column] = row
    return Aligned(names, float(table[rows, columns].sum() / first.size), float(adjusted_rand(table)))
