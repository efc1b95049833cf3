"""FocusConfig: validation, JSON round trip, unknown keys."""

from __future__ import annotations

import json
import pickle
import random
from fractions import Fraction

import pytest

from focus_runtime.budget import HeadCounts, HeadException, HeadSetting, query_settings, to_budget
from focus_runtime.config import MAX_GROUPS, FocusConfig, FocusSettings, TextOptions
from focus_runtime.errors import ConfigError, InputError
from focus_runtime.mask.rule import PairRule

WHOLE = ["num_groups", "routing_dim", "top_k", "window", "num_sinks", "sinkhorn_iterations"]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [-1, 1.5, "2", True, None, 10**30])
def test_whole_numbers_are_checked_and_named(name, value):
    with pytest.raises(ConfigError, match=name):
        FocusConfig(**{name: value})
    if name in ("window", "num_sinks"):
        assert getattr(FocusConfig(**{name: 0}), name) == 0
    else:
        with pytest.raises(ConfigError, match=name):
            FocusConfig(**{name: 0})


def test_settings_left_alone_are_the_centroid_files_own():
    file = FocusConfig(top_k=3, window=7, window_growth=(8, 64), budget=(HeadException(layer=0, full=True),))
    assert FocusSettings().of(file) == file
    chosen = FocusSettings(window=9, window_growth=(1, 1), budget=[]).of(file)
    assert (chosen.top_k, chosen.window, chosen.window_growth, chosen.budget) == (3, 9, None, ())


def test_an_executed_configuration_is_executed_again_whatever_the_file_says():
    executed = FocusConfig(top_k=1, window=5, num_sinks=0, assignment="sinkhorn")
    again = TextOptions.from_config(executed, max_tokens=50)
    file = FocusConfig(top_k=2, window=99, window_growth=(8, 64), budget=(HeadException(layer=0, full=True),))
    assert (again.of(file), again.max_tokens) == (executed, 50)
    assert pickle.loads(pickle.dumps(again)) == again  # it goes to the workers of a corpus


@pytest.mark.parametrize(
    "wrong", [{"window": -1}, {"top_k": 0}, {"assignment": "late"}, {"window_growth": (9, 3)}, {"budget": [{}]}]
)
def test_settings_are_checked_when_they_are_made(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        FocusSettings(**wrong)


@pytest.mark.parametrize("wrong", [{"max_tokens": 1}, {"repeats": 0}, {"backend": "magic"}, {"special_tokens": "all"}])
def test_options_of_a_text_are_checked_when_they_are_made(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        TextOptions(**wrong)


@pytest.mark.parametrize("value", [0, -0.1, float("nan"), float("inf"), "0.1", True, None, 10**400])
def test_temperature(value):
    with pytest.raises(ConfigError, match="temperature"):
        FocusConfig(temperature=value)


@pytest.mark.parametrize("name", ["normalisation", "assignment", "gate"])
@pytest.mark.parametrize("value", ["", "Log", None, 3, ["log"]])
def test_choices(name, value):
    with pytest.raises(ConfigError, match=name):
        FocusConfig(**{name: value})


def test_top_k_above_the_groups_names_both_numbers():
    with pytest.raises(ConfigError, match=r"top_k is 5 .* 4 groups"):
        FocusConfig(top_k=5, num_groups=4)


def test_too_many_groups_for_the_bit_set():
    assert FocusConfig(num_groups=MAX_GROUPS).num_groups == 63
    with pytest.raises(ConfigError, match="num_groups is 64"):
        FocusConfig(num_groups=64)


@pytest.mark.parametrize("layers", [(), (1, 1), (-1,), (0.5,), (True,), "01", 3, {"a": 1}, [[0]], [None]])
def test_bad_layers(layers):
    with pytest.raises(ConfigError, match="layers"):
        FocusConfig.from_dict({"layers": layers})


@pytest.mark.parametrize("changes", [{}, {"layers": (2, 0)}, {"temperature": 0.25, "gate": "paper", "window": 0}])
def test_json_round_trip(changes):
    config = FocusConfig(**changes)
    assert FocusConfig.from_json(config.to_json()) == config


def test_unknown_key_is_refused_not_dropped():
    values = json.loads(FocusConfig().to_json()) | {"windows": 3}
    with pytest.raises(ConfigError, match="'windows'"):
        FocusConfig.from_dict(values)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "[" * 100_000, '{"window": ' + "9" * 5000 + "}"])
def test_text_that_is_no_configuration(text):
    with pytest.raises(ConfigError):
        FocusConfig.from_json(text)


def test_replace_validates_and_knows_its_names():
    assert FocusConfig().replace(window=7).window == 7
    with pytest.raises(ConfigError, match="top_k"):
        FocusConfig().replace(top_k=9)
    with pytest.raises(ConfigError, match="'widnow'"):
        FocusConfig().replace(widnow=9)


def test_errors_are_input_errors_with_their_parts():
    error = InputError("x is 3.", expected="4.", fix="change it.")
    assert isinstance(error, ValueError)
    assert str(error) == "x is 3; expected 4; change it"
    assert (error.problem, error.expected, error.fix) == ("x is 3.", "4.", "change it.")


@pytest.mark.slow
def test_full_up_to_is_where_the_rule_first_lets_a_pair_fall(fresh_seed):
    """Counted query by query, for random windows, sinks, growths and budgets."""
    for _ in range(200):
        windows = [random.randint(0, 20) for _ in range(3)]
        first = random.randint(1, 25)
        config = FocusConfig(
            window=windows[0],
            num_sinks=random.randint(0, 4),
            logit_factors=random.random() < 0.3,
            window_growth=random.choice([None, (first, random.randint(first, 80))]),
            budget=[
                HeadException(layer=0, window=windows[1]),
                HeadException(layer=1, query_head=2, window=windows[2]),
                HeadException(layer=2, full=True),
            ],
        )
        rules = [PairRule.of(config, window) for window in windows]
        (first, last), sinks = config.growth, config.num_sinks
        acting = [
            i + 1 > Fraction((min(windows) + 1) * min(max(i, first), last), first) and config.logit_factors
            for i in range(2000)
        ]
        dropping = (i for i in range(2000) if acting[i] or any(rule.nearest_far(i) > sinks for rule in rules))
        assert config.full_up_to == next(dropping), config
    assert config.shortest_window == min(windows)
    assert FocusConfig(window=2**31 - 1, window_growth=(1, 2**31 - 1)).full_up_to > 2**60


def config(*budget, **settings):
    return FocusConfig(**{"num_groups": 8, "top_k": 1, "window": 64, "budget": budget, **settings})


def settings_by_head(config, layer, heads, share=2):
    """By key-value head; query heads that share one agree."""
    return query_settings(config.head_groups(layer, HeadCounts(heads, heads * share)), HeadCounts(heads, heads))


def test_an_exception_for_a_head_wins_over_one_for_its_layer():
    chosen = config({"layer": 2, "head": 1, "full": True}, {"layer": 2, "top_k": 3}, {"layer": 4, "window": 7})
    usual, full = HeadSetting(1, 64), HeadSetting(0, 0, full=True)
    assert settings_by_head(chosen, 2, 3) == [HeadSetting(3, 64), full, HeadSetting(3, 64)]
    assert settings_by_head(chosen, 4, 3) == [HeadSetting(1, 7)] * 3
    assert settings_by_head(chosen, 0, 3) == [usual] * 3
    assert [group.heads for group in chosen.head_groups(2, HeadCounts(3, 9))] == [(0, 2), (1,)]


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
