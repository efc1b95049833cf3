"""Named questions of the browser, each answered by one function; every view has a file with its table of questions."""

from __future__ import annotations

from collections.abc import Callable

from focus_explorer.errors import InputError
from focus_explorer.services.service import Service
from focus_explorer.ui.parameters import Answer, Question
from focus_explorer.ui.questions import compare, exports, groups, run, sparsity, statistics

Function = Callable[[Service, Question], Answer]

ANSWERS: dict[str, Function] = {
    name: function
    for view in (run, groups, sparsity, compare, statistics, exports)
    for name, function in view.QUESTIONS.items()
}


def answer(service: Service, question: Question) -> Answer:
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
    return ANSWERS[what](service, question)
