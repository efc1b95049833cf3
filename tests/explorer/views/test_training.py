"""Curves of trainings as the page draws them."""

from __future__ import annotations

import json

import pyarrow as pa

from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.processes import Trainings
from focus_explorer.views.training import POINTS, curves_payload
from focus_runtime.fit.settings import TrainStep
from focus_runtime.fit.validation import Evaluation
from focus_runtime.store.database import Database
from focus_runtime.store.training import TrainingInfo, TrainingRecorder


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


def test_scores_on_held_out_text_are_curves_by_domain(tmp_path):
    """As the page asks for them: what it has already is not sent again."""
    database = Database(tmp_path / "runs.duckdb")
    info = TrainingInfo(
        name="a",
        kind="centroids",
        model_id="tiny",
        model_fingerprint="f",
        steps=4,
        seed=0,
        device="cpu",
        dtype="float32",
        settings={"loss": "both", "distil_weight": 2.0, "hard_steps": 1},
    )
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
