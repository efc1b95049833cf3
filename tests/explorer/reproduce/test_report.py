"""Claims are decided by intervals."""

from __future__ import annotations

from focus_explorer.reproduce.report import agreed, decided, unharmed
from focus_runtime.measure.intervals import Interval


def test_a_claim_is_decided_by_its_interval():
    clear, across = Interval(-0.02, -0.03, -0.01, 12), Interval(-0.02, -0.05, 0.01, 12)
    assert decided(clear, below=0.0) is True
    assert decided(clear, above=0.0) is False
    assert decided(across, below=0.0) is None
    assert decided(Interval(-0.02, None, None, 1), below=0.0) is None
    assert (agreed([True, True]), agreed([True, None]), agreed([None, False])) == (True, None, False)


def test_no_loss_is_said_only_where_the_items_can_tell():
    lost = {"difference": {"value": -0.3, "low": -0.5, "high": -0.1}, "p_value": 0.01}
    gained = {"difference": {"value": 0.3, "low": 0.1, "high": 0.5}, "p_value": 0.01}
    same = {"difference": {"value": 0.0, "low": 0.0, "high": 0.0}, "p_value": 1.0}
    wide = {"difference": {"value": -0.05, "low": -0.2, "high": 0.1}, "p_value": 0.6}
    assert unharmed(lost, 100) is False
    assert unharmed(gained, 100) is True
    assert unharmed(same, 100) is True
    assert unharmed(same, 16) is None
    assert unharmed(wide, 16) is None
