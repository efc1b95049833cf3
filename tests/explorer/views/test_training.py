"""Curves of trainings as the page draws them."""

from __future__ import annotations

import json

import pyarrow as pa

from focus_explorer.views.training import POINTS, curves_payload


def steps_table(count, mode="focus", training_id="a"):
    numbers = [float(i) for i in range(1, count + 1)]
    return pa.table(
        {
            "training_id": [training_id] * count,
            "mode": [mode] * count,
            "step": pa.array(range(1, count + 1)),
            **dict.fromkeys(("loss", "retained_pairs", "tokens_per_second", "learning_rate"), numbers),
            **{name: pa.array([None] * count, pa.float64()) for name in ("dominance", "dominance_max")},
        }
    )


def test_short_curves_are_sent_as_they_are():
    made = curves_payload(steps_table(3))["a"]["focus"]
    assert made["step"] == [1, 2, 3]
    assert made["loss"] == [1.0, 2.0, 3.0]
    assert made["dominance"] == [None, None, None]
    assert (made["stride"], made["last"]) == (1, 3)


def test_long_curves_are_thinned_to_means():
    count = 2 * POINTS + 3
    made = curves_payload(steps_table(count))["a"]["focus"]
    assert made["stride"] == 3
    assert made["loss"][:2] == [2.0, 5.0]
    assert made["step"][:2] == [3, 6]
    assert made["step"][-1] == made["last"] == count
    assert {len(values) for values in made.values() if isinstance(values, list)} == {-(-count // 3)}
    json.dumps(made, allow_nan=False)


def test_curves_are_kept_apart_by_training_and_mode():
    made = curves_payload(pa.concat_tables([steps_table(2), steps_table(3, "full"), steps_table(1, "focus", "b")]))
    assert {(key, mode): part["last"] for key, modes in made.items() for mode, part in modes.items()} == {
        ("a", "focus"): 2,
        ("a", "full"): 3,
        ("b", "focus"): 1,
    }
