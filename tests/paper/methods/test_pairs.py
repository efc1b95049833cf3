"""The count of pairs that a method read."""

from __future__ import annotations

import pytest

from focus_runtime.errors import InputError
from paper.methods.pairs import Reading


def test_a_share_of_no_pass_is_refused():
    with pytest.raises(InputError, match="no forward pass"):
        _ = Reading().retained_pairs
