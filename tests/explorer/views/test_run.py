"""Compact JSON of a run."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from focus_explorer.views.run import cells_payload


@pytest.mark.parametrize(("groups", "width"), [(1, 1), (8, 1), (9, 2), (17, 4), (33, 8), (64, 8)])
def test_memberships_of_any_size_survive(groups, width):
    member = np.array([1 << (groups - 1), 1], dtype=np.uint64).astype(np.int64)
    share = np.full((2, groups), 1 / groups, np.float32)
    cells = cells_payload(member, share, np.full(2, np.log(groups), np.float32))
    assert cells["width"] == width
    assert np.frombuffer(base64.b64decode(cells["membership"]), f"<u{width}").tolist() == [1 << (groups - 1), 1]
    assert list(base64.b64decode(cells["entropy"])) == ([255, 255] if groups > 1 else [0, 0])
