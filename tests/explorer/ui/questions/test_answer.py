"""The dispatcher of the page's questions."""

from __future__ import annotations

import pytest

from focus_explorer.errors import InputError
from focus_explorer.ui.questions.answer import ANSWERS, answer


def test_a_question_reaches_its_function(monkeypatch):
    monkeypatch.setitem(ANSWERS, "echo", lambda service, question: {"service": service, "layer": question["layer"]})
    assert answer("service", {"what": "echo", "layer": 3}) == {"service": "service", "layer": 3}


@pytest.mark.parametrize("question", [{}, {"what": "no such"}, {"what": None}])
def test_an_unknown_question_is_one_clear_message(question):
    with pytest.raises(InputError, match="reload the page"):
        answer(None, question)
