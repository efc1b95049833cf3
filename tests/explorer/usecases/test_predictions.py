"""Stored predictions of a run: the same losses, the same tokens for page, programs and exports."""

from __future__ import annotations

import base64
import shutil

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.runs import prediction_rows
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stored(tmp_path_factory, model_folder):
    service = Service(tmp_path_factory.mktemp("predictions") / "runs.duckdb")
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=1)
    return service, analyze(service, TEXT, request)


def test_every_token_but_the_first_has_five_in_both_modes(stored):
    service, run_id = stored
    tokens = fetch(service.database, "tokens", run_id=run_id).to_pylist()
    rows = prediction_rows(service.database, run_id, 0, 5000)
    assert [(row["position"], row["mode"]) for row in rows] == [
        (token["position"], mode) for token in tokens[1:] for mode in ("focus", "full")
    ]
    losses = {
        (r["mode"], r["position"]): r["nll"] for r in fetch(service.database, "losses", run_id=run_id).to_pylist()
    }
    for row in rows:
        assert len(row["pieces"]) == len(row["probabilities"]) == 5
        assert row["probabilities"] == sorted(row["probabilities"], reverse=True)
        own = np.exp(-losses[row["mode"], row["position"]])
        piece = tokens[row["position"]]["piece"]
        if row["rank"] <= 5:
            assert row["pieces"][row["rank"] - 1] == piece
            assert row["probabilities"][row["rank"] - 1] == pytest.approx(own, rel=1e-3)
        else:
            assert own <= row["probabilities"][-1] * 1.001


def test_changes_are_those_of_the_rows(stored):
    service, run_id = stored
    answer = dispatch(service, {"what": "prediction_changes", "run": run_id})
    codes = np.frombuffer(base64.b64decode(answer["codes"]), dtype=np.uint8)
    rows = {(row["position"], row["mode"]): row for row in prediction_rows(service.database, run_id, 0, 5000)}
    assert answer["stored"]
    assert codes[0] == 0
    for position in range(1, codes.size):
        full, focus = rows[position, "full"], rows[position, "focus"]
        assert bool(codes[position] & 1) == (full["pieces"][0] != focus["pieces"][0])
        assert bool(codes[position] & 2) == (full["rank"] == 1)
        assert bool(codes[position] & 4) == (focus["rank"] == 1)
    for position in (1, codes.size // 2, codes.size - 1):
        one = dispatch(service, {"what": "predictions", "run": run_id, "token": position})
        for mode in ("full", "focus"):
            assert one[mode]["rank"] == rows[position, mode]["rank"]
            assert [piece for piece, *_ in one[mode]["tokens"]] == rows[position, mode]["pieces"]
    assert dispatch(service, {"what": "predictions", "run": run_id, "token": 0}) == {
        "full": None,
        "focus": None,
        "changed": None,
    }


@pytest.fixture
def copied(stored, tmp_path):
    """A copy of the database, to be changed."""
    return Service(shutil.copy(stored[0].database.path, tmp_path / "runs.duckdb")), stored[1]


def test_tokens_that_are_written_alike_are_told_apart_by_their_ids(copied):
    service, run_id = copied
    with service.database.write() as connection:
        connection.execute("UPDATE predictions SET pieces = list_transform(pieces, lambda piece: '\ufffd')")
        connection.execute("UPDATE predictions SET token_ids = [7] WHERE position = 1")
        connection.execute("UPDATE predictions SET token_ids = [if(mode = 'full', 7, 8)] WHERE position = 2")
    codes = dispatch(service, {"what": "prediction_changes", "run": run_id})["codes"]
    assert [byte & 1 for byte in base64.b64decode(codes)[1:3]] == [0, 1]
    one = [dispatch(service, {"what": "predictions", "run": run_id, "token": token}) for token in (1, 2)]
    assert [answer["changed"] for answer in one] == [False, True]


def test_a_run_stored_before_has_none(copied):
    service, run_id = copied
    with service.database.write() as connection:
        connection.execute("DELETE FROM predictions")
    assert not dispatch(service, {"what": "prediction_changes", "run": run_id})["stored"]
    assert dispatch(service, {"what": "predictions", "run": run_id, "token": 3})["full"] is None


def test_what_is_not_there_is_refused(stored):
    service, run_id = stored
    with pytest.raises(NotFoundError, match="nope"):
        dispatch(service, {"what": "predictions", "run": "nope", "token": 3})
    with pytest.raises(InputError, match="whole number"):
        dispatch(service, {"what": "predictions", "run": run_id, "token": "x"})
    with pytest.raises(InputError, match="count from 1"):
        prediction_rows(service.database, run_id, 0, 0)
