"""Generation with full attention and with Focus."""

from __future__ import annotations

import json

import pytest

from focus_explorer.errors import InputError
from focus_explorer.usecases.run_payload import load_run
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
