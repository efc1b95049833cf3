"""Numbers, masks and problems of stored runs."""

from __future__ import annotations

import base64
import hashlib

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.errors import NotFoundError
from focus_explorer.usecases.maps import map_payload
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.runs import mask_blocks, run_summary, run_text


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


def test_missing_run_and_layer_are_named(service, run_id):
    with pytest.raises(NotFoundError, match="no run 'nope'"):
        run_summary(service.database, "nope")
    with pytest.raises(NotFoundError, match="no layer 99"):
        mask_blocks(service.database, run_id, 99)
    with pytest.raises(NotFoundError, match="no layer 99"):
        map_payload(service, run_id, 99)
