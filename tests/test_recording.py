"""The recorded run of the landing page fits today's views, and the example of the mask's picture is cut from it."""

from __future__ import annotations

import base64
import json

import pytest

from deploy.site.record import LAYER, RECORDING, opening, read_recording, write_recording
from tests.explorer.views.test_payloads import check
from tests.test_method import example

ANSWERS = {
    "groups all": "GroupsPayload",
    "group_names all": "GroupNamesPayload",
    "agreement all": "LayerAgreementPayload",
    "map all": "MapPayload",
    "timings all": "TimingsPayload",
    "pair_distances 7": "DistancePayload",
    "pair_distances_mean all": "DistanceMeanPayload",
    "prediction_changes all": "PredictionChangesPayload",
    "word_classes all": "WordClassesPayload",
}


@pytest.fixture(scope="module")
def recording():
    return read_recording()


@pytest.mark.slow
def test_it_is_small_and_has_the_payloads_that_the_views_read(recording):
    assert RECORDING.stat().st_size < 400_000
    check(recording["run"], "RunPayload")
    for parts in recording["masks"].values():
        for part in parts:
            check(part, "MaskPayload")
    for what, payload in ANSWERS.items():
        check(recording["answers"][what], payload)
    for prediction in recording["predictions"][1::40]:
        check(prediction, "PredictionsPayload")


def test_it_is_a_run_of_the_shipped_files_on_the_sample(recording):
    run = recording["run"]
    assert "".join(run["pieces"]) == opening()
    assert (run["run"]["model_id"], run["run"]["centroids_name"]) == ("smollm2-135m", "default")


def test_the_example_is_cut_from_it(recording):
    run, order = recording["run"], example()
    at = run["layer_ids"].index(LAYER) * len(run["pieces"])
    assert [groups[0] for groups in order] == list(base64.b64decode(run["top"])[at : at + len(order)])


def test_what_is_written_is_read_again(recording, tmp_path, monkeypatch):
    monkeypatch.setattr("deploy.site.record.RECORDING", tmp_path / "run.json.xz")
    small = {"run": recording["run"]["run"], "masks": {"7": recording["masks"]["7"][:1]}}
    write_recording(small)
    assert json.dumps(read_recording()) == json.dumps(small)
