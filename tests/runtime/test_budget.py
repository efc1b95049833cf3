"""Budgets: what they accept, what each head gets, and how they are written."""

from __future__ import annotations

import pytest

from focus_runtime.budget import HeadException, HeadSetting
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError


def config(*budget, **settings):
    return FocusConfig(**{"num_groups": 8, "top_k": 1, "window": 64, "budget": budget, **settings})


def settings_by_head(config, layer, heads):
    return [
        next(group.setting for group in config.head_groups(layer, heads) if head in group.heads)
        for head in range(heads)
    ]


def test_without_a_budget_all_heads_are_one_group():
    (group,) = config().head_groups(3, 4)
    assert group.heads == (0, 1, 2, 3)
    assert group.setting == HeadSetting(1, 64)


def test_an_exception_for_a_head_wins_over_one_for_its_layer():
    chosen = config({"layer": 2, "head": 1, "full": True}, {"layer": 2, "top_k": 3}, {"layer": 4, "window": 7})
    usual, full = HeadSetting(1, 64), HeadSetting(0, 0, full=True)
    assert settings_by_head(chosen, 2, 3) == [HeadSetting(3, 64), full, HeadSetting(3, 64)]
    assert settings_by_head(chosen, 4, 3) == [HeadSetting(1, 7)] * 3
    assert settings_by_head(chosen, 0, 3) == [usual] * 3
    assert [group.heads for group in chosen.head_groups(2, 3)] == [(0, 2), (1,)]


def test_heads_follow_the_usual_setting_where_the_budget_says_nothing():
    chosen = config({"layer": 0, "head": 0, "window": 9}).replace(top_k=2, window=5)
    assert settings_by_head(chosen, 0, 2) == [HeadSetting(2, 9), HeadSetting(2, 5)]


def test_json_and_back_in_one_order():
    one = config({"layer": 5, "full": True}, {"layer": 1, "head": 2, "top_k": 2, "window": 3})
    other = config(HeadException(layer=1, head=2, top_k=2, window=3), HeadException(layer=5, full=True))
    assert one == other == FocusConfig.from_json(one.to_json())
    assert one.to_json() == other.to_json()
    assert hash(one) == hash(other)


def test_without_a_budget_the_json_is_that_of_version_1():
    assert "budget" not in config().to_json()


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("all", "the budget is str"),
        ([3], "the budget holds int"),
        ([{"head": 0, "full": True}], "without a layer"),
        ([{"layer": 0, "heads": 1}], "unknown setting 'heads'"),
        ([{"layer": 0}], "says nothing about layer 0"),
        ([{"layer": 0, "head": 1}], "says nothing about layer 0, head 1"),
        ([{"layer": -1, "full": True}], "layer is -1"),
        ([{"layer": True, "full": True}], "layer is True"),
        ([{"layer": 0, "head": 0.5, "full": True}], "head is 0.5"),
        ([{"layer": 0, "top_k": 0}], "top_k is 0"),
        ([{"layer": 0, "top_k": 9}], "top_k 9 but there are 8 groups"),
        ([{"layer": 0, "window": 2**31}], "window is 2147483648"),
        ([{"layer": 0, "full": 1}], "full is 1"),
        ([{"layer": 0, "full": True, "top_k": 2}], "full attention and a top_k"),
        ([{"layer": 0, "full": True}, {"layer": 0, "top_k": 2}], "names layer 0 twice"),
    ],
)
def test_a_bad_budget_is_refused(budget, words):
    with pytest.raises(ConfigError, match=words):
        config().replace(budget=budget)


def test_a_budget_names_layers_with_routers():
    with pytest.raises(ConfigError, match="names layer 3, which has no router"):
        config({"layer": 3, "full": True}, layers=(0, 1))
