"""The dispatcher of the page's questions, and questions that are refused."""

from __future__ import annotations

import pytest

from focus_explorer.errors import InputError
from focus_explorer.web.requests.dispatch import HANDLERS, dispatch
from tests.explorer.web.requests.conftest import until_done


@pytest.mark.parametrize(
    "question",
    [
        {"what": "statistics", "run": "../../etc"},
        {"what": "statistics_layer", "run": "RUN", "layer": 99},
        {"what": "statistics_layer", "run": "RUN", "layer": "1"},
        {"what": "statistics_agreement", "run": "RUN", "other": "nope"},
        {"what": "export_command", "run": "RUN", "kind": "table", "name": "../x", "format": "csv"},
        {"what": "export_start", "run": "RUN", "kind": "figure", "name": "map", "format": "exe", "preset": "column"},
        {"what": "export_start", "run": "RUN", "kind": "table", "name": "groups", "format": "csv", "layer": 99},
        {"what": "export_start", "run": "RUN", "kind": "everything"},
        {"what": "export_state", "id": "../../etc/passwd"},
    ],
)
def test_bad_questions_are_refused_in_one_line(service, run_id, question):
    question = {key: run_id if value == "RUN" else value for key, value in question.items()}
    with pytest.raises(InputError) as problem:
        until_done(service, question)
    assert "\n" not in str(problem.value)


def test_a_question_reaches_its_function(monkeypatch):
    monkeypatch.setitem(HANDLERS, "echo", lambda service, question: {"service": service, "layer": question["layer"]})
    assert dispatch("service", {"what": "echo", "layer": 3}) == {"service": "service", "layer": 3}


@pytest.mark.parametrize("question", [{}, {"what": "no such"}, {"what": None}])
def test_an_unknown_question_is_one_clear_message(question):
    with pytest.raises(InputError, match="reload the page"):
        dispatch(None, question)
