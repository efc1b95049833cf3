"""Budgets: what they accept, what each head gets, and how they are written."""

from __future__ import annotations

import random

import pytest

from focus_runtime.budget import HeadCounts, HeadException, HeadSetting, query_settings, to_budget
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError


def config(*budget, **settings):
    return FocusConfig(**{"num_groups": 8, "top_k": 1, "window": 64, "budget": budget, **settings})


def settings_by_head(config, layer, heads, share=2):
    """By key-value head; query heads that share one agree."""
    return query_settings(config.head_groups(layer, HeadCounts(heads, heads * share)), HeadCounts(heads, heads))


def test_without_a_budget_all_heads_are_one_group():
    (group,) = config().head_groups(3, HeadCounts(4, 12))
    assert group.heads == (0, 1, 2, 3)
    assert group.setting == HeadSetting(1, 64)


def test_an_exception_for_a_head_wins_over_one_for_its_layer():
    chosen = config({"layer": 2, "head": 1, "full": True}, {"layer": 2, "top_k": 3}, {"layer": 4, "window": 7})
    usual, full = HeadSetting(1, 64), HeadSetting(0, 0, full=True)
    assert settings_by_head(chosen, 2, 3) == [HeadSetting(3, 64), full, HeadSetting(3, 64)]
    assert settings_by_head(chosen, 4, 3) == [HeadSetting(1, 7)] * 3
    assert settings_by_head(chosen, 0, 3) == [usual] * 3
    assert [group.heads for group in chosen.head_groups(2, HeadCounts(3, 9))] == [(0, 2), (1,)]


def test_heads_follow_the_usual_setting_where_the_budget_says_nothing():
    chosen = config({"layer": 0, "head": 0, "window": 9}).replace(top_k=2, window=5)
    assert settings_by_head(chosen, 0, 2) == [HeadSetting(2, 9), HeadSetting(2, 5)]


FULL = HeadSetting(0, 0, full=True)


def test_an_exception_for_a_query_head_wins_over_one_for_its_key_head():
    chosen = config(
        {"layer": 1, "query_head": 4, "top_k": 0},
        {"layer": 1, "head": 1, "full": True},
        {"layer": 1, "window": 9},
        {"layer": 2, "query_head": 99, "full": True},
    )
    counts = HeadCounts(2, 6)
    groups = chosen.head_groups(1, counts)
    usual = HeadSetting(1, 9)
    assert all(group.by_query for group in groups)
    assert query_settings(groups, counts) == [usual, usual, usual, FULL, HeadSetting(0, 64), FULL]
    assert [group.heads for group in groups] == [(0, 1, 2), (3, 5), (4,)]
    (group,) = chosen.head_groups(2, counts)  # the layer lacks that head
    assert (group.heads, group.by_query) == ((0, 1), False)


def test_settings_of_query_heads_are_a_budget_and_back(fresh_seed):
    generator, usual, counts = random.Random(fresh_seed), HeadSetting(1, 64), HeadCounts(3, 12)
    kinds = [usual, FULL, HeadSetting(0, 32), HeadSetting(2, 64), HeadSetting(2, 7)]
    for _ in range(20):
        settings = {(layer, head): generator.choice(kinds[: 1 + layer]) for layer in range(5) for head in range(12)}
        budget = to_budget(settings, usual, counts.shared_by)
        chosen = config(*budget)
        for layer in range(5):
            own = [settings[layer, head] for head in range(12)]
            assert query_settings(chosen.head_groups(layer, counts), counts) == own
        assert FocusConfig.from_json(chosen.to_json()) == chosen


def test_query_heads_that_agree_are_named_as_their_key_head():
    usual = HeadSetting(1, 64)
    settings = {(0, 0): FULL, (0, 1): FULL, (0, 2): usual, (0, 3): HeadSetting(0, 64)}
    assert [entry.to_dict() for entry in to_budget(settings, usual, 2)] == [
        {"layer": 0, "head": 0, "full": True},
        {"layer": 0, "query_head": 3, "top_k": 0},
    ]


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
        ([{"layer": 0, "top_k": -1}], "top_k is -1"),
        ([{"layer": 0, "query_head": -2, "full": True}], "query_head is -2"),
        ([{"layer": 0, "head": 1, "query_head": 2, "full": True}], "head 1 and query_head 2 in one exception"),
        ([{"layer": 0, "query_head": 2, "full": True}] * 2, "names layer 0, query head 2 twice"),
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
