"""Rows as the page gets them."""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pytest

from focus_explorer.statistics.rows import StatisticRow, to_table
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.processes import Trainings
from focus_explorer.views.payloads.statistics import StatisticColumnsPayload
from focus_explorer.views.run import cells_payload
from focus_explorer.views.statistics import as_columns, judged
from focus_explorer.views.training import POINTS, curves_payload, report_html
from focus_runtime.fit.settings import TrainStep
from focus_runtime.fit.validation import Evaluation
from focus_runtime.store.database import Database
from focus_runtime.store.training import TrainingInfo, TrainingRecorder


def row(**values):
    fixed = {"scope": "layer", "layer": 1, "statistic": "nmi", "value": 0.2, "low": 0.15, "high": 0.25}
    counts = {"count": 100, "denominator": "tokens", "units": 40, "unit": "sentence"}
    return StatisticRow(**fixed | counts | values)


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
    row = {"value": 0.123456789, "low": float("nan"), "high": None, "count": 123456789}
    columns = as_columns(StatisticColumnsPayload, [row])
    assert [columns[name] for name in (*row, "group")] == [[0.123457], [None], [None], [123456789], [None]]


def steps_table(count, mode="focus", training_id="a"):
    numbers = [float(i) for i in range(1, count + 1)]
    return pa.table(
        {
            "training_id": [training_id] * count,
            "mode": [mode] * count,
            "step": pa.array(range(1, count + 1)),
            **dict.fromkeys(("loss", "retained_pairs", "tokens_per_second", "learning_rate"), numbers),
            **{name: pa.array([None] * count, pa.float64()) for name in ("layer_error", "dominance", "dominance_max")},
        }
    )


def test_short_curves_are_sent_as_they_are_and_kept_apart_by_training_and_mode():
    curves = curves_payload(pa.concat_tables([steps_table(2), steps_table(3, "full"), steps_table(1, "focus", "b")]))
    assert {(key, mode): part["last"] for key, modes in curves.items() for mode, part in modes.items()} == {
        ("a", "focus"): 2,
        ("a", "full"): 3,
        ("b", "focus"): 1,
    }
    made = curves["a"]["full"]
    assert (made["step"], made["loss"], made["stride"]) == ([1, 2, 3], [1.0, 2.0, 3.0], 1)
    assert made["dominance"] == [None, None, None]


def test_long_curves_are_thinned_to_means():
    count = 2 * POINTS + 3
    made = curves_payload(steps_table(count))["a"]["focus"]
    assert made["stride"] == 3
    assert made["loss"][:2] == [2.0, 5.0]
    assert made["step"][:2] == [3, 6]
    assert made["step"][-1] == made["last"] == count
    assert {len(values) for values in made.values() if isinstance(values, list)} == {-(-count // 3)}
    json.dumps(made, allow_nan=False)


def test_scores_on_held_out_text_are_curves_by_domain(tmp_path):
    """As the page asks for them: what it has already is not sent again."""
    database = Database(tmp_path / "runs.duckdb")
    made_with = {"kind": "centroids", "model_id": "tiny", "model_fingerprint": "f", "device": "cpu", "dtype": "float32"}
    settings = {"loss": "both", "distil_weight": 2.0, "hard_steps": 1}
    info = TrainingInfo(name="a", steps=4, seed=0, settings=settings, **made_with)
    report = {"full": 8.0, "scored_tokens": 70, "k=1": {"perplexity": 9.0}, "domains": {"b": {}, "a": {}}}
    with TrainingRecorder(database, info) as recorder:
        for number in range(1, 5):
            recorder.step(TrainStep(number, 3.0, 0.3, 0.3, 0.5, 1e-3, 10.0))
            if number % 2 == 0:
                recorder.evaluation(Evaluation(number, {"a": number + 0.5, "b": 1.0}, {"a": 3, "b": 4}, 0.3, 0.5))
        recorder.finish("done", validation=report)
    trainings = Trainings(Service(database.path))
    key = recorder.training_id
    made = trainings.payload({key: {}})
    curves = made["curves"][key]
    assert set(curves) == {"focus", "held-out:a", "held-out:b"}
    assert (curves["held-out:a"]["step"], curves["held-out:a"]["loss"]) == ([2, 4], [2.5, 4.5])
    assert curves["held-out:a"]["dominance"] == [None, None]
    [run] = made["trainings"]
    assert run["validation"] == {"full": 8.0, "scored": 70, "focus": {"k=1": 9.0}, "domains": ["a", "b"]}
    assert run["settings"] == info.settings
    json.dumps(made, allow_nan=False)
    more = trainings.payload({key: {"focus": 4, "held-out:a": 2, "held-out:b": 4}})["curves"][key]
    assert {mode: curve["step"] for mode, curve in more.items()} == {"held-out:a": [4]}


def test_reports_escape_what_users_wrote():
    html = report_html("<script>", ["<script>"])
    assert "<script>" not in html
    assert html.count("&lt;script&gt;") == 2


@pytest.mark.parametrize(("groups", "width"), [(1, 1), (8, 1), (9, 2), (17, 4), (33, 8), (64, 8)])
def test_memberships_of_any_size_survive(groups, width):
    member = np.array([1 << (groups - 1), 1], dtype=np.uint64).astype(np.int64)
    share = np.full((2, groups), 1 / groups, np.float32)
    cells = cells_payload(member, share, np.full(2, np.log(groups), np.float32))
    assert cells["width"] == width
    assert np.frombuffer(base64.b64decode(cells["membership"]), f"<u{width}").tolist() == [1 << (groups - 1), 1]
    assert list(base64.b64decode(cells["entropy"])) == ([255, 255] if groups > 1 else [0, 0])
