"""Letters of groups."""

from __future__ import annotations

from focus_explorer.data.group_labels import group_label


def test_group_labels():
    assert [group_label(i) for i in (0, 25, 26, 51, 52, 62)] == ["A", "Z", "AA", "AZ", "BA", "BK"]
