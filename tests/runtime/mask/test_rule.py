"""The hard mask against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from focus_runtime.budget import MAX_WHOLE
from focus_runtime.errors import ConfigError
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.counts import count_pairs
from focus_runtime.mask.rule import PairRule, group_label, group_number
from tests.runtime.mask.double_loop import cause, memberships, rules


@settings(max_examples=40, deadline=None)
@given(memberships, rules)
def test_allowed_pairs_agree_with_the_definition_and_the_counts(membership, rule):
    bits, position = torch.from_numpy(membership)[None], torch.arange(len(membership))[None]
    allowed = allowed_pairs(bits, bits, position, position, rule)[0]
    for i in range(len(membership)):
        for j in range(len(membership)):
            assert bool(allowed[i, j]) == (j <= i and cause(membership, i, j, rule) != "dropped")
    counted = count_pairs(membership, rule)
    assert int(allowed.sum()) == counted.counts.sum() - counted.total("dropped")


def test_negative_positions_are_before_the_text():
    """Padding before the first token has negative positions; a real token's window is not shortened by it."""
    bits = torch.ones(1, 4, dtype=torch.int64)
    position = torch.tensor([[-2, -1, 0, 1]])
    allowed = allowed_pairs(bits, bits, position, position, PairRule(0))[0]
    assert allowed[3, 2]
    assert not allowed[2, 3]


@settings(max_examples=60, deadline=None)
@given(rules)
def test_what_a_rule_says_of_one_position_is_what_it_says_of_many(rule):
    """And the first key that a query sees never moves back."""
    positions = range(90)
    near = [rule.near(i) for i in positions]
    assert rule.near(np.arange(90)).tolist() == rule.near(torch.arange(90)).tolist() == near
    far = [max(0, rule.nearest_far(i)) for i in positions]
    assert far == sorted(far)
    assert rule.grows or len(set(near)) == 1


def test_a_window_grows_in_proportion_between_two_positions():
    rule = PairRule(64, growth=(1024, 8192))
    assert [rule.near(i) for i in (0, 1024, 1040, 2048, 5000, 8192, 100_000)] == [64, 64, 65, 128, 312, 512, 512]
    assert PairRule(MAX_WHOLE, growth=(1, MAX_WHOLE)).near(torch.tensor([MAX_WHOLE])).item() == MAX_WHOLE


def test_group_labels():
    assert [group_label(i) for i in (0, 25, 26, 51, 52, 62)] == ["A", "Z", "AA", "AZ", "BA", "BK"]


@pytest.mark.parametrize("number", [0, 1, 25, 26, 51, 52, 62, 701, 702])
def test_a_letter_is_read_back(number):
    assert group_number(group_label(number)) == group_number(group_label(number).lower()) == number
    assert group_number(str(number)) == number


@pytest.mark.parametrize("label", ["", "-1", "A1", "é", "²"])
def test_others_are_refused(label):
    with pytest.raises(ConfigError, match="is no group"):
        group_number(label)
