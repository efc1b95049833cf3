"""Named questions of the browser, each answered by one function; every view has a file with its table of questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.services.service import Service
from focus_explorer.ui.parameters import Payload
from focus_explorer.ui.questions import compare, exports, groups, run, sparsity, statistics

Answer = Callable[[Service, dict[str, Any]], Payload]

ANSWERS: dict[str, Answer] = {
    name: function
    for view in (run, groups, sparsity, compare, statistics, exports)
    for name, function in view.QUESTIONS.items()
}


def answer(service: Service, question: dict[str, Any]) -> dict[str, Any]:
    """Answer a question of the page with JSON-ready values.

    Args:
        service: database and model.
        question: `what` names the question; the rest are its parameters.

    Raises:
        InputError: there is no such question, or its parameters make no sense.
    """
    what = question.get("what")
    if what not in ANSWERS:
        raise InputError(f"the page asked {what!r}", expected="a question this version knows", fix="reload the page")
    return dict(ANSWERS[what](service, question))
