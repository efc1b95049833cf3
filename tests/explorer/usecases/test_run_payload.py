"""How runs reach the browser: the first message, layers on demand, kinds of words, and their compression."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases import run_payload as run_data
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.runs import mask_blocks, run_summary, run_text
from focus_explorer.web.requests.dispatch import PACKED_FROM, dispatch, packed
from focus_runtime.text.tagging import classify


def test_summary_numbers_agree_with_the_rows(service, run_id):
    summary = run_summary(service.database, run_id)
    losses = fetch(service.database, "losses", run_id=run_id).to_pylist()
    for mode in ("full", "focus"):
        nll = [row["nll"] for row in losses if row["mode"] == mode]
        assert summary["perplexity"][mode] == pytest.approx(np.exp(np.mean(nll)))
        assert len(nll) == summary["num_tokens"] - 1 == summary["scored_tokens"]
        assert summary["milliseconds"]["end_to_end"][mode]["repeats"] == 2
    assert 0 < summary["retained_pairs"] < 1
    assert 1 / 8 <= summary["dominance"] <= 1


def test_the_text_of_a_run_is_what_was_analysed(service, run_id):
    run = fetch(service.database, "run", run_id=run_id).to_pylist()[0]
    text = run_text(service.database, run_id)
    assert hashlib.sha256(text.encode()).hexdigest() == run["text_sha256"]


def test_mask_payload_adds_up(service, run_id):
    layer = load_run(service.database, run_id)["layer_ids"][0]
    mask = mask_blocks(service.database, run_id, layer)
    counts = np.frombuffer(base64.b64decode(mask["counts"]), "<u4").reshape(5, -1)
    blocks = mask["num_blocks"]
    assert counts.shape[1] == blocks * (blocks + 1) // 2
    count = run_summary(service.database, run_id)["num_tokens"]
    assert counts.sum() == count * (count + 1) // 2


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


@pytest.mark.slow
def test_orders_of_groups_give_the_groups_of_every_top_k(service, run_id, model_folder, monkeypatch):
    """Those of the run itself, and in its first layer, whose input no setting changes, those of another run."""
    config = run_data.load_run(service.database, run_id)["run"]["config"]
    answer = dispatch(service, {"what": "group_orders", "run": run_id, "layer": 0})
    rows = fetch(service.database, "assignments", run_id=run_id).to_pylist()
    assert sorted(map(int, answer["orders"])) == sorted({row["layer"] for row in rows})

    def members(layer, top_k):
        order = np.frombuffer(base64.b64decode(answer["orders"][str(layer)]), np.uint8)
        return [sum(1 << int(g) for g in one[:top_k]) for one in order.reshape(-1, config["num_groups"])]

    for layer in {row["layer"] for row in rows}:
        stored = [row["membership"] for row in rows if row["layer"] == layer]
        assert members(layer, config["top_k"]) == stored
    first = min(row["layer"] for row in rows)
    for top_k in {1, 2, 3} - {config["top_k"]}:
        request = AnalyzeRequest(model=model_folder, centroids="random", top_k=top_k, repeats=1)
        text = run_text(service.database, run_id)
        other = analyze(service, text, request)
        of_other = [
            row["membership"]
            for row in fetch(service.database, "assignments", run_id=other).to_pylist()
            if row["layer"] == first
        ]
        assert members(first, top_k) == of_other
    monkeypatch.setattr(run_data, "ORDER_BYTES", 100)
    alone = dispatch(service, {"what": "group_orders", "run": run_id, "layer": 1})
    assert alone == {"orders": {"1": answer["orders"]["1"]}, "fixed": {"1": []}}


def test_tokens_whose_groups_are_not_their_first_ones_are_named_with_their_sets():
    stored = np.array([1, 0b111, 2, -1, 1 << 40], dtype=np.int64)
    first = np.array([1, 1, 2, 4, 1 << 3], dtype=np.int64)
    assert run_data._differing(stored, first) == [(1, 0b111, 0), (3, 2**32 - 1, 2**32 - 1), (4, 0, 1 << 8)]


def test_questions_about_missing_layers_and_runs_are_named(service, run_id):
    for layer in (None, "3", True, 1.5):
        for what in ("layer_cells", "group_orders"):
            with pytest.raises(InputError, match=r"layer is .*; expected a whole number"):
                dispatch(service, {"what": what, "run": run_id, "layer": layer})
    for what in ("layer_cells", "group_orders"):
        with pytest.raises(NotFoundError, match="no layer 99"):
            dispatch(service, {"what": what, "run": run_id, "layer": 99})
    with pytest.raises(NotFoundError, match="no layer 99"):
        mask_blocks(service.database, run_id, 99)
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
