"""Letters of groups."""

from __future__ import annotations

import pytest

from focus_runtime.errors import ConfigError
from focus_runtime.mask.rule import group_label, group_number


def test_group_labels():
    assert [group_label(i) for i in (0, 25, 26, 51, 52, 62)] == ["A", "Z", "AA", "AZ", "BA", "BK"]


@pytest.mark.parametrize("number", [0, 1, 25, 26, 51, 52, 62, 701, 702])
def test_a_letter_is_read_back(number):
    assert group_number(group_label(number)) == group_number(group_label(number).lower()) == number


def test_a_number_is_a_group_too():
    assert group_number("7") == 7


@pytest.mark.parametrize("label", ["", "-1", "A1", "é", "²"])
def test_others_are_refused(label):
    with pytest.raises(ConfigError, match="is no group"):
        group_number(label)
