"""Claims are decided by intervals, and say by what."""

from __future__ import annotations

import pytest

from focus_runtime.measure.intervals import Interval
from paper import verdicts
from paper.verdicts import RULES, Rule, agreed, decided, judge, lies_below, unharmed


@pytest.fixture
def rule(monkeypatch):
    """Judge by a rule of the test's own."""

    def judged(value, evidence="", **settings):
        monkeypatch.setitem(verdicts.RULES, "one", Rule("text", **settings))
        return judge("one", value, evidence)

    return judged


def test_a_claim_is_decided_by_its_interval():
    clear, across = Interval(-0.02, -0.03, -0.01, 12), Interval(-0.02, -0.05, 0.01, 12)
    assert decided(clear, below=0.0) is True
    assert decided(clear, above=0.0) is False
    assert decided(across, below=0.0) is None
    assert decided(Interval(-0.02, None, None, 1), below=0.0) is None
    assert (agreed([True, True]), agreed([True, None]), agreed([None, False])) == (True, None, False)
    assert lies_below(clear, Interval(0.1, 0.0, 0.2, 12)) is True
    assert lies_below(Interval(0.1, 0.0, 0.2, 12), clear) is False
    assert lies_below(clear, across) is None


def test_a_claim_says_its_margin_and_what_the_data_could_show(rule):
    won = rule(Interval(-0.02, -0.03, -0.01, 12), "12 sequences", below=0.0)
    assert won.held is True
    assert won.evidence == "-2.00% (-3.00% to -1.00%); 12 sequences"
    assert won.rule == "margin: below +0.00%; smallest effect these data can show: 1.00%"
    alone = rule(Interval(2.5, None, None, 1), above=2.0, form=".2f")
    assert (alone.held, alone.evidence, alone.rule) == (None, "2.50", "margin: above 2.00; one unit, so no interval")


def test_differences_are_small_only_where_every_interval_lies_within_the_margin(rule):
    within, wide, outside = Interval(0.0, -0.01, 0.01, 9), Interval(0.01, -0.01, 0.03, 9), Interval(0.05, 0.03, 0.07, 9)
    assert rule([within], within=0.02).held is True
    assert rule([within, wide], within=0.02).held is None
    assert rule([within, wide, outside], within=0.02).held is False
    assert rule([Interval(0.0, None, None, 1)], within=0.02).held is None
    assert "smallest effects these data can show: 1.00% to 2.00%" in rule([within, wide], within=1.0).rule


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


def test_every_claim_has_a_margin_or_says_its_rule():
    for rule in RULES.values():
        assert rule.words or (rule.below, rule.above, rule.within) != (None, None, None)
