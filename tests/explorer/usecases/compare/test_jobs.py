"""Comparisons in the background, as the page starts and stops them."""

from __future__ import annotations

import json

import pytest

from focus_explorer.errors import ConfigError, InputError
from focus_explorer.web.requests.dispatch import dispatch
from tests.explorer.usecases.conftest import wait_for_job

pytestmark = pytest.mark.slow


def test_the_page_starts_polls_and_stops(two_runs):
    service, first, _ = two_runs
    question = {"what": "compare_grid_start", "run": first, "top_k": [1], "window": [16], "repeats": 1}
    dispatch(service, question)
    with pytest.raises(InputError, match="another comparison"):
        dispatch(service, question)
    answer = wait_for_job(lambda: dispatch(service, {"what": "compare_grid", "run": first}))
    assert answer["job"]["state"] == "done"
    assert {(c["kind"], c["window_size"]) for c in answer["cells"]} >= {("focus", 16), ("window", 16), ("random", 16)}
    json.dumps(answer)
    dispatch(service, question | {"window": [3, 5, 7, 9, 11], "repeats": 20})
    dispatch(service, {"what": "compare_stop"})
    assert wait_for_job(lambda: dispatch(service, {"what": "compare_grid", "run": first}))["job"]["state"] == "stopped"
    with pytest.raises(ConfigError, match="window is -1"):
        dispatch(service, question | {"window": [-1]})
    with pytest.raises(InputError, match="whole numbers"):
        dispatch(service, question | {"window": "8"})
