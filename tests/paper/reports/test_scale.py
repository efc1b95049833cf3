"""Scales of a reproduction."""

from __future__ import annotations

import pytest

from focus_explorer.errors import InputError
from paper.reports.scale import scale_named


def test_scales_are_named():
    assert scale_named("small").seeds == (0, 1, 2)
    with pytest.raises(InputError, match="there is no scale"):
        scale_named("medium")
