"""What a token attends to, from a stored run: computed once, kept, refused where it cannot be."""

from __future__ import annotations

import base64
import json
import time

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.usecases import token_attention as attention
from focus_explorer.usecases.pairs import TokenAttentions
from focus_explorer.usecases.runs import run_config
from focus_explorer.web.requests.dispatch import dispatch


def computed(service, run_id, token):
    answer = dispatch(service, {"what": "token_attention_start", "run": run_id, "token": token})
    deadline = time.monotonic() + 60
    while answer["layers"] is None and time.monotonic() < deadline:
        assert answer["job"]["state"] != "failed", answer["job"]["message"]
        time.sleep(0.05)
        answer = dispatch(service, {"what": "token_attention", "run": run_id, "token": token})
    return answer["layers"]


def array(text, dtype, rows):
    return np.frombuffer(base64.b64decode(text), dtype).reshape(rows, -1)


def test_what_focus_keeps_is_the_stored_mask(service, run_id):
    """Every listed pair is kept where the stored groups, window and sinks keep it; probabilities are at most 1."""
    token = 40
    run = fetch(service.database, "run", run_id=run_id).to_pylist()[0]
    config = run_config(run)
    for layer in computed(service, run_id, token):
        rows = fetch(service.database, "assignments", run_id=run_id).to_pylist()
        member = [row["membership"] for row in rows if row["layer"] == layer["layer"]]
        keys = array(layer["keys"], np.int32, layer["rows"])
        full, focus, kept = (array(layer[name], np.float32, layer["rows"]) for name in ("full", "focus", "kept"))
        for place, key in enumerate(keys[1]):
            near = token - key <= config.window or key < config.num_sinks
            assert kept[1, place] == float(near or bool(member[token] & member[key]))
            assert (focus[1, place] == 0) == (kept[1, place] == 0)
        assert ((full.sum(axis=1) <= 1 + 1e-5) & (focus.sum(axis=1) <= 1 + 1e-5)).all()
        shares = array(layer["full_kept"], np.float32, layer["rows"])[:, 0]
        assert ((shares > 0) & (shares <= 1 + 1e-5)).all()


def test_it_is_computed_once_while_few_others_are(service, run_id, monkeypatch):
    first = computed(service, run_id, 12)
    parts = service.part(TokenAttentions)
    monkeypatch.setattr(parts, "_measure", lambda *_: pytest.fail("computed again"))
    assert computed(service, run_id, 12) == first


def test_tokens_that_there_are_not_and_changed_runs_are_refused(service, run_id, monkeypatch):
    count = fetch(service.database, "run", run_id=run_id).to_pylist()[0]["num_tokens"]
    for token in (-1, count):
        with pytest.raises(InputError, match=f"token {token:,} of this run cannot be computed") as refused:
            dispatch(service, {"what": "token_attention_start", "run": run_id, "token": token})
        assert f"0 to {count - 1:,}" in str(refused.value)
    monkeypatch.setattr(attention, "MOST_TOKENS", 10)
    with pytest.raises(InputError, match="0 to 9: the model reads all tokens before it"):
        dispatch(service, {"what": "token_attention_start", "run": run_id, "token": 11})
    row = {"num_tokens": 8, "changes": json.dumps(["silence:0:A"])}
    monkeypatch.setattr(attention, "fetch_run", lambda *_: row)
    with pytest.raises(InputError, match="changed by hand"):
        dispatch(service, {"what": "token_attention_start", "run": run_id, "token": 3})


def test_nothing_is_known_before_and_a_stop_leaves_nothing(service, run_id, monkeypatch):
    answer = dispatch(service, {"what": "token_attention", "run": run_id, "token": 5})
    assert answer == {"token": 5, "job": None, "layers": None}
    parts = service.part(TokenAttentions)

    def wait(run, token, job):
        while True:
            job.step("Reading the text twice", 0.5)
            time.sleep(0.01)

    monkeypatch.setattr(parts, "_measure", wait)
    dispatch(service, {"what": "token_attention_start", "run": run_id, "token": 5})
    dispatch(service, {"what": "token_attention_stop", "run": run_id, "token": 5})
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        answer = dispatch(service, {"what": "token_attention", "run": run_id, "token": 5})
        if answer["job"]["state"] == "stopped":
            break
        time.sleep(0.02)
    assert answer["job"]["state"] == "stopped"
    assert answer["layers"] is None
