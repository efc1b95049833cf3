"""Functions for programs called with any JSON: an answer or one sentence, no traceback, no folder of the server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.security.mutations import EXAMPLES, FUZZ, REMOVED, VALUES

FILES = ("upload_centroids", "start_training")  # take uploads, which Gradio checks in ways of its own
JSON = VALUES.filter(lambda value: value is not REMOVED and "\ud800" not in str(value) and abs(_size(value)) < 1e300)


def _size(value):
    """What a client cannot send as JSON: numbers that are none or of hundreds of digits."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    if isinstance(value, int | float):
        return value if value == value else float("inf")
    return max((abs(_size(one)) for one in inside), default=0)


@pytest.mark.long
@pytest.mark.fuzz
def test_l_every_function_with_any_argument(private, stored, capfd):
    run_id = stored[1]
    functions = {
        name.strip("/"): function["parameters"]
        for name, function in private.client.get("/gradio_api/info").json()["named_endpoints"].items()
    }
    places = [(name, i) for name, given in functions.items() if name not in FILES for i in range(len(given))]
    assert len(places) > 50

    def usual(parameter):
        if parameter["parameter_has_default"]:
            return parameter["parameter_default"]
        kind = parameter["type"].get("type")
        return run_id if kind == "string" else [] if kind == "array" else 0

    @settings(FUZZ, max_examples=max(40, EXAMPLES // 4), deadline=30_000)
    @given(place=st.sampled_from(places), value=JSON)
    def check(place, value):
        name, index = place
        values = [usual(parameter) for parameter in functions[name]]
        values[index] = value
        answer, problem = private.call(name, *values)
        log = "".join(capfd.readouterr())
        assert "Traceback" not in log, log
        assert str(stored[0].parent) not in problem + str(answer)

    check()


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("run", [5], "run_id is 5; expected a text"),
        ("tokens", ["R", "x", 5], "first is 'x'; expected a whole number"),
        ("tokens", ["R", 0, 2**70], "count is 1180591620717411303424; expected a whole number"),
        ("map", ["R", True, False], "layer is True; expected a whole number"),
        ("map", ["R", 0, "no"], "quick is 'no'; expected true or false"),
        ("what_if", ["R", "x"], "changes is 'x'; expected a list"),
        ("rename", ["R", None], "name is None; expected a text"),
    ],
)
def test_l_the_argument_is_named(private, stored, name, values, said):
    answer, problem = private.call(name, *(stored[1] if value == "R" else value for value in values))
    assert answer is None
    assert said in problem


@pytest.mark.parametrize(
    ("component", "function", "request_", "said"),
    [
        ("fe-runs", "label", {"run": "R", "tags": 5}, "tags is 5; expected a list of texts"),
        ("fe-runs", "label", {"tags": []}, "run is missing; expected a text"),
        ("fe-training", "load_trainings", {"shown": ["a"]}, "shown is ['a']; expected an object, or null"),
        ("fe-training", "load_trainings", {"shown": {"a": 1}}, "shown is {'a': 1}; expected an object, or null"),
        ("fe-view", "load_mask", {"run": "R", "layer": "1"}, "layer is '1'; expected a whole number"),
    ],
)
def test_l_a_parameter_of_a_component_is_named(private, component, function, request_, said):
    assert private.server(component, function, request_).json() == {"error": said}


def test_a_call_with_too_few_values_is_one_sentence(private, capfd):
    answer, problem = private.call("rename", "A secret text")
    assert answer is None
    assert json.loads(problem)["error"] == "rename got 1 of 2 values; /gradio_api/info lists them"
    log = "".join(capfd.readouterr())
    assert "Traceback" not in log
    assert "secret" not in log


def test_values_with_a_default_may_be_left_out_at_the_end(private, stored):
    """As a program did that was written before the function had them."""
    (shortest, _), (whole, _) = (private.call("tokens", stored[1], *more) for more in ([], [0, 500]))
    assert shortest == whole
    assert shortest
