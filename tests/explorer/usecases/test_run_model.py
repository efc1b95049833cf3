from __future__ import annotations

import pytest

from focus_explorer.usecases.run_model import backend_again


@pytest.mark.parametrize(
    ("execution", "expected"),
    [
        ({"requested_backend": "masked", "backend": "masked"}, "masked"),
        ({"requested_backend": "auto", "backend": "decomposed"}, "auto"),
        ({"requested_backend": None, "backend": "decomposed"}, "decomposed"),  # stored before 0.2
        ({"backend": "fused"}, "auto"),
        ({"backend": "fused, masked"}, "auto"),
    ],
)
def test_a_run_is_measured_again_by_the_backend_it_was_made_with(execution, expected):
    assert backend_again(execution) == expected
