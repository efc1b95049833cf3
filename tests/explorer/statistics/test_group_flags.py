"""Marks of groups that are out of balance."""

from __future__ import annotations

import numpy as np
import pytest

from focus_explorer.statistics.groups import group_flags


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([25, 25, 25, 25], [[], [], [], []]),
        ([97, 2, 1, 0], [["collapsed"], ["starved"], ["starved"], ["dead"]]),
        ([62, 38, 0, 0], [[], [], ["dead"], ["dead"]]),  # halfway between an even share and all is 62.5 %
        ([63, 37, 0, 0], [["collapsed"], [], ["dead"], ["dead"]]),
        ([10], [[]]),  # a single group cannot collapse
    ],
)
def test_group_flags(sizes, expected):
    assert group_flags(np.array(sizes)) == expected
