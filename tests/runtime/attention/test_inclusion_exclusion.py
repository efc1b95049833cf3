"""The sets of groups that the decomposition calls."""

from __future__ import annotations

import pytest

from focus_runtime.attention.decomposed import subsets_of
from focus_runtime.errors import InputError


def test_subsets_of_memberships():
    assert subsets_of([0b011, 0b110]) == [0b001, 0b010, 0b100, 0b011, 0b110]
    assert subsets_of([0, 0b1000]) == [0b1000]
    with pytest.raises(InputError, match="sets of groups"):
        subsets_of([(1 << 20) - 1])
