"""Generation with full attention and with Focus."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.usecases.generate import TYPED_TOKENS, LiveTexts
from focus_explorer.usecases.run_payload import load_run
from focus_explorer.usecases.runs import run_text, token_pieces
from focus_explorer.web.requests.dispatch import dispatch
from tests.explorer.conftest import TEXT
from tests.explorer.usecases.conftest import wait_for_job

pytestmark = pytest.mark.slow


def test_generation_continues_as_each_mode_alone_would(two_runs):
    service, first, _ = two_runs
    start = {"what": "compare_generation_start", "run": first, "prompt": TEXT[:60], "max_tokens": 6}
    dispatch(service, start)
    answer = wait_for_job(lambda: dispatch(service, {"what": "compare_generation", "run": first}))
    assert answer["job"]["state"] == "done", answer["job"]
    sides, layers = answer["sides"], load_run(service.database, first)["layer_ids"]
    for mode in ("full", "focus"):
        assert len(sides[mode]["pieces"]) == len(sides[mode]["groups"]) == len(sides[mode]["ms"]) == 6
        assert set(sides[mode]["groups"][0]) == {str(layer) for layer in layers}
        assert "".join(sides[mode]["pieces"]) == sides[mode]["text"]
    json.dumps(answer)
    with pytest.raises(InputError, match="prompt is empty"):
        dispatch(service, start | {"prompt": "  "})
    with pytest.raises(InputError, match="temperature"):
        dispatch(service, start | {"temperature": 3})


def groups(answer):
    tops = np.frombuffer(base64.b64decode(answer["top"]), dtype=np.uint8)
    return tops.reshape(len(answer["layers"]), len(answer["pieces"]))


def test_they_are_the_groups_of_a_run_of_the_text(service, run_id):
    live = LiveTexts(service)
    text = run_text(service.database, run_id)
    answer = live.read(run_id, text, "a")
    assert answer["pieces"] == token_pieces(service.database, run_id)
    rows = fetch(service.database, "tops", run_id=run_id)
    for row, layer in enumerate(answer["layers"]):
        own = rows.filter(np.equal(rows["layer"].to_numpy(), layer)).sort_by("position")["top_group"].to_numpy()
        np.testing.assert_array_equal(groups(answer)[row], own)
    assert len(answer["next"]) == 5
    assert all(0 < share <= 1 for _, share in answer["next"])


def test_only_what_is_new_is_read(service, run_id):
    live = LiveTexts(service)
    assert live.read(run_id, "The harbour was", "a")["tokens_read"] == 15
    assert live.read(run_id, "The harbour was q", "a")["tokens_read"] == 2
    assert live.read(run_id, "The harbour was", "b")["tokens_read"] == 15  # another visitor
    assert live.read(run_id, "The harbour was qu", "a")["tokens_read"] == 1


def test_an_empty_text_has_no_tokens(service, run_id):
    answer = LiveTexts(service).read(run_id, " ", "a")
    assert (answer["pieces"], answer["top"], answer["next"], answer["tokens_read"]) == ([], "", [], 0)


@pytest.mark.parametrize(
    ("text", "said"), [("a" * (TYPED_TOKENS + 1), "at most 2,000 while typing"), ("a\0b", "NUL character")]
)
def test_what_cannot_be_read_is_refused(service, run_id, text, said):
    with pytest.raises(InputError, match=said):
        LiveTexts(service).read(run_id, text, "a")
