"""What a laboratory keeps: centroids and rows once, scores to the last bit, answers held against the model as it is."""

from __future__ import annotations

import copy
import dataclasses
import json
import math

import numpy as np
import pytest

from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.perplexity import Scores
from paper.lab.answers import LAST_WORDS, last_words
from paper.lab.lab import Lab
from paper.lab.shared import tuned_row
from paper.output.report import plain_values, read_json
from tests.paper.conftest import REPEATED, UNIT


def test_a_row_is_measured_once(lab):
    cells = {"a": Interval(1.0, None, None, 1), "b": [1, Interval(2.0, 1.0, 3.0, 4, 2)], "c": {"d": None, "e": "x"}}
    assert lab.kept("row", lambda: cells, of=1) == cells
    assert lab.kept("row", lambda: pytest.fail("measured again"), of=1) == cells
    assert lab.under("paper").kept("row", lambda: {"other": 1}, of=2) == {"other": 1}


def test_scores_are_kept_to_the_last_bit(tmp_path):
    rest = np.random.default_rng().random((3, 4))
    rest[2, 0] = math.nan
    scores = Scores(np.array([math.pi, 1 / 3]), np.array([7, 9]), *rest)
    file = tmp_path / "row.json"
    file.write_text(json.dumps(plain_values({"scores": scores})))
    kept = read_json(file)["scores"]
    for field in dataclasses.fields(scores):
        np.testing.assert_array_equal(getattr(kept, field.name), getattr(scores, field.name))
    assert read_json(tmp_path / "none.json") is None
    file.write_text(file.read_text()[:-1])
    assert read_json(file) is None


@pytest.mark.long
@pytest.mark.slow
def test_answers_are_compared_with_the_model_as_it_is_whichever_is_asked_first(folder, tmp_path):
    pytest.importorskip("lm_eval")
    scale = dataclasses.replace(UNIT, seq_len=160, window=64, weight_steps=60, weight_rate=1e-2, task_items=12)
    lab = Lab(scale, str(folder), [REPEATED], [REPEATED], {"train": ["a"], "val": ["b"]}, tmp_path)
    tuned = tuned_row(lab, "full fine-tuning", None)  # as figure1 does, before table1 asks the model as it is
    fresh = copy.copy(lab)
    fresh.tasks = {}
    alone = last_words(fresh, lab.model)
    assert alone["beyond"] == 1.0
    assert 0 <= alone["short"].low <= alone["short"].value <= 1
    assert alone["tests"]["long"]["difference"]["value"] == 0.0
    for part in ("short", "long"):
        assert tuned["tests"][part]["full"] == alone[part].value
    first, again = (one.tasks[LAST_WORDS].unchanged for one in (lab, fresh))
    assert {name: result.metrics["acc"].value for name, result in first.items()} == {
        name: result.metrics["acc"].value for name, result in again.items()
    }
    assert tuned["long"].value != alone["long"].value, "the training changed what is answered"
