"""Statistics compared with their baselines, as columns for the page."""

from __future__ import annotations

import pytest

from focus_explorer.statistics.rows import StatisticRow, to_table
from focus_explorer.views.statistics import compact, judged


def row(**values):
    fixed = {
        "scope": "layer",
        "layer": 1,
        "statistic": "nmi",
        "value": 0.2,
        "low": 0.15,
        "high": 0.25,
        "count": 100,
        "denominator": "tokens",
        "units": 40,
        "unit": "sentence",
    }
    return StatisticRow(**fixed | values)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"shuffled": 0.1, "p_value": 0.001}, "above"),
        ({"shuffled": 0.19, "shuffled_low": 0.1, "shuffled_high": 0.3, "p_value": 0.4}, "same"),
        ({"shuffled": 0.5, "shuffled_low": 0.4, "shuffled_high": 0.6, "p_value": 1.0}, "below"),
        ({"shuffled": 0.16}, "same"),  # known exactly: the value's own interval decides
        ({"shuffled": 0.1}, "above"),
        ({"shuffled": 0.2}, None),  # shuffling changes nothing
        ({}, None),
    ],
)
def test_which_baselines_a_value_differs_from(values, verdict):
    (judgement,) = judged(to_table([row(**values)]), "layer")
    assert judgement["from_shuffled"] == verdict


def test_a_difference_from_random_decides_and_without_one_the_intervals_do():
    random = {"random": 0.14, "random_low": 0.1, "random_high": 0.16}  # overlaps, yet the paired difference does not
    paired = row(statistic="nmi_minus_random", value=0.06, low=0.01, high=0.1)
    (with_one,) = judged(to_table([row(**random), paired]), "layer")
    (without,) = judged(to_table([row(**random)]), "layer")
    assert (with_one["from_random"], without["from_random"]) == ("above", "same")
    assert with_one["difference"] == 0.06
    (apart,) = judged(to_table([row(random=0.4, random_low=0.3, random_high=0.5)]), "layer")
    assert apart["from_random"] == "below"


def test_numbers_are_short_and_missing_ones_are_null():
    columns = compact([{"a": 0.123456789, "b": float("nan"), "c": None, "d": 123456789}], ["a", "b", "c", "d"])
    assert columns == {"a": [0.123457], "b": [None], "c": [None], "d": [123456789]}
