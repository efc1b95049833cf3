"""How runs reach the browser: the first message, layers on demand, kinds of words, and their compression."""

from __future__ import annotations

import base64
import gzip
import json

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.services import run_payload as run_data
from focus_explorer.services.run_payload import load_run
from focus_explorer.ui.requests.answers import PACKED_FROM, packed
from focus_explorer.ui.requests.dispatch import dispatch
from focus_runtime.text.word_classes import classify


def check_cells(cells, rows, groups):
    """A layer as the page gets it, against the stored rows in order of position."""
    assert cells["width"] == 1
    member = np.frombuffer(base64.b64decode(cells["membership"]), f"<u{cells['width']}")
    assert member.tolist() == [row["membership"] for row in rows]
    shown = np.frombuffer(base64.b64decode(cells["probabilities"]), np.uint8).reshape(-1, groups) / 255
    exact = np.array([row["probabilities"] for row in rows])
    np.testing.assert_allclose(shown, exact, atol=0.002)
    entropy = -(exact * np.log(np.clip(exact, 1e-30, None))).sum(axis=1) / np.log(groups)
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(cells["entropy"]), np.uint8) / 255, entropy, atol=0.003)


def test_payload_matches_the_database(service, run_id):
    payload = load_run(service.database, run_id)
    count, layers, groups = payload["run"]["num_tokens"], payload["num_layers"], payload["run"]["config"]["num_groups"]
    assert len(payload["pieces"]) == count
    top = np.frombuffer(base64.b64decode(payload["top"]), np.uint8).reshape(layers, count)
    rows = fetch(service.database, "assignments", run_id=run_id).to_pylist()
    assert top.ravel().tolist() == [row["top_group"] for row in rows]
    stored = {
        mode: [
            row["nll"] for row in fetch(service.database, "losses", run_id=run_id).to_pylist() if row["mode"] == mode
        ]
        for mode in ("full", "focus")
    }
    for mode, nll in stored.items():
        np.testing.assert_allclose(np.frombuffer(base64.b64decode(payload["losses"][mode]), "<f4"), nll, rtol=1e-6)
    for layer in payload["layer_ids"]:
        cells = payload["cells"][str(layer)]
        own = [row for row in rows if row["layer"] == layer]
        check_cells(cells, own, groups)
    for number, layer in enumerate(payload["layers"]):
        assert sum(layer["pairs"].values()) == count * (count + 1) // 2
        shares = [cell["share"] for cell in payload["groups"][number]]
        assert sum(shares) == pytest.approx(1)
        assert layer["dominance"] == pytest.approx(max(shares))
    json.dumps(payload)


def test_a_long_run_comes_without_cells_and_layers_are_requested(service, run_id, monkeypatch):
    whole = run_data.load_run(service.database, run_id)
    monkeypatch.setattr(run_data, "WHOLE_BYTES", 100)
    first = run_data.load_run(service.database, run_id)
    assert first["cells"] == {}
    assert {key: value for key, value in first.items() if key != "cells"} == {
        key: value for key, value in whole.items() if key != "cells"
    }
    rows = fetch(service.database, "assignments", run_id=run_id).to_pylist()
    for layer in first["layer_ids"]:
        cells = dispatch(service, {"what": "layer_cells", "run": run_id, "layer": layer})
        assert cells == whole["cells"][str(layer)]
        check_cells(cells, [row for row in rows if row["layer"] == layer], first["run"]["config"]["num_groups"])


def test_rows_are_placed_by_layer_and_position_whatever_their_order(service, run_id):
    rows = fetch(service.database, "cells", run_id=run_id, layer=None)
    layers = np.unique(rows["layer"].to_numpy())
    count = rows.num_rows // layers.size
    shuffled = rows.take(np.random.default_rng(0).permutation(rows.num_rows))
    assert run_data._cells(shuffled, layers, count, {}) == run_data._cells(rows, layers, count, {})


def test_questions_about_missing_layers_and_runs_are_named(service, run_id):
    for layer in (None, "3", True, 1.5):
        with pytest.raises(InputError, match="the layer is"):
            dispatch(service, {"what": "layer_cells", "run": run_id, "layer": layer})
    with pytest.raises(NotFoundError, match="no layer 99"):
        dispatch(service, {"what": "layer_cells", "run": run_id, "layer": 99})
    with pytest.raises(NotFoundError, match="no run 'nope'"):
        dispatch(service, {"what": "word_classes", "run": "nope"})


def test_word_classes_are_those_of_the_pieces(service, run_id):
    answer = dispatch(service, {"what": "word_classes", "run": run_id})
    codes = np.frombuffer(base64.b64decode(answer["classes"]), np.uint8)
    pieces = [row["piece"] for row in fetch(service.database, "pieces", run_id=run_id).to_pylist()]
    assert [answer["names"][code] for code in codes] == classify(pieces).classes


def test_answers_are_compressed_when_that_pays():
    small, large = {"a": 1}, {"text": "token " * PACKED_FROM}
    assert json.loads(packed(small).body) == small
    sent = packed(large)
    assert sent.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(sent.body)) == large
    assert len(sent.body) < PACKED_FROM
