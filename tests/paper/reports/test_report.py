"""Claims are decided by intervals."""

from __future__ import annotations

from focus_runtime.measure.intervals import Interval
from paper.reports.report import agreed, alike, answers_rule, decided, judged, unharmed


def test_a_claim_is_decided_by_its_interval():
    clear, across = Interval(-0.02, -0.03, -0.01, 12), Interval(-0.02, -0.05, 0.01, 12)
    assert decided(clear, below=0.0) is True
    assert decided(clear, above=0.0) is False
    assert decided(across, below=0.0) is None
    assert decided(Interval(-0.02, None, None, 1), below=0.0) is None
    assert (agreed([True, True]), agreed([True, None]), agreed([None, False])) == (True, None, False)


def test_a_claim_says_its_margin_and_what_the_data_could_show():
    won = judged("lower", Interval(-0.02, -0.03, -0.01, 12), below=0.0, evidence="12 sequences")
    assert won.held is True
    assert won.evidence == "-2.00% (-3.00% to -1.00%); 12 sequences"
    assert won.rule == "margin: below +0.00%; smallest effect these data can show: 1.00%"
    alone = judged("fast", Interval(2.5, None, None, 1), above=2.0, form=".2f")
    assert (alone.held, alone.rule) == (None, "margin: above 2.00; one unit, so no interval")


def test_differences_are_small_only_where_every_interval_lies_within_the_margin():
    within, wide, outside = Interval(0.0, -0.01, 0.01, 9), Interval(0.01, -0.01, 0.03, 9), Interval(0.05, 0.03, 0.07, 9)
    assert alike("same", [within], margin=0.02, evidence="").held is True
    assert alike("same", [within, wide], margin=0.02, evidence="").held is None
    assert alike("same", [within, wide, outside], margin=0.02, evidence="").held is False
    assert alike("same", [Interval(0.0, None, None, 1)], margin=0.02, evidence="").held is None
    assert (
        "smallest effects these data can show: 1.00% to 2.00%" in alike("", [within, wide], margin=1, evidence="").rule
    )


def test_few_items_are_said_to_be_too_few():
    assert answers_rule(100).endswith("100 items can exclude one of 3.0%")
    assert answers_rule(16).endswith("too few to say that there is none")


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
