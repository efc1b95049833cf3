"""FocusConfig: validation, JSON round trip, unknown keys."""

from __future__ import annotations

import dataclasses
import json
import random
from fractions import Fraction

import pytest

from focus_runtime.budget import HeadException
from focus_runtime.config import MAX_GROUPS, FocusConfig
from focus_runtime.errors import ConfigError, InputError
from focus_runtime.mask.rule import PairRule

WHOLE = ["num_groups", "routing_dim", "top_k", "window", "num_sinks", "sinkhorn_iterations"]


def test_defaults_are_valid_and_immutable():
    config = FocusConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.window = 3


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [-1, 1.5, "2", True, None, 10**30])
def test_whole_numbers_are_checked_and_named(name, value):
    with pytest.raises(ConfigError, match=name):
        FocusConfig(**{name: value})


@pytest.mark.parametrize("name", ["num_groups", "routing_dim", "top_k", "sinkhorn_iterations"])
def test_zero_is_refused_where_it_means_nothing(name):
    with pytest.raises(ConfigError, match=name):
        FocusConfig(**{name: 0})


@pytest.mark.parametrize("name", ["window", "num_sinks"])
def test_zero_is_allowed_where_it_means_none(name):
    assert getattr(FocusConfig(**{name: 0}), name) == 0


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


@pytest.mark.parametrize("layers", [(), (1, 1), (-1,), (0.5,), (True,), "01", 3])
def test_bad_layers(layers):
    with pytest.raises(ConfigError, match="layers"):
        FocusConfig(layers=layers)


def test_layers_are_sorted():
    assert FocusConfig(layers=(3, 0, 2)).layers == (0, 2, 3)


@pytest.mark.parametrize("changes", [{}, {"layers": (2, 0)}, {"temperature": 0.25, "gate": "paper", "window": 0}])
def test_json_round_trip(changes):
    config = FocusConfig(**changes)
    assert FocusConfig.from_json(config.to_json()) == config


def test_equal_configurations_have_equal_json():
    assert FocusConfig(layers=(1, 0)).to_json() == FocusConfig(layers=(0, 1)).to_json()


def test_unknown_key_is_refused_not_dropped():
    values = json.loads(FocusConfig().to_json()) | {"windows": 3}
    with pytest.raises(ConfigError, match="'windows'"):
        FocusConfig.from_dict(values)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "[" * 100_000, '{"window": ' + "9" * 5000 + "}"])
def test_text_that_is_no_configuration(text):
    with pytest.raises(ConfigError):
        FocusConfig.from_json(text)


@pytest.mark.parametrize("layers", [5, "ab", {"a": 1}, [[0]], [None]])
def test_bad_layers_from_json(layers):
    with pytest.raises(ConfigError, match="layers"):
        FocusConfig.from_dict({"layers": layers})


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
