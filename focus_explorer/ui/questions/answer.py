"""Named questions the browser asks about runs, each answered by one function; the views' modules add theirs here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.services.run_payload import layer_cells, word_classes
from focus_explorer.services.service import Service
from focus_explorer.ui.questions import groups as answers_groups
from focus_explorer.ui.questions.compare import COMPARE_ANSWERS
from focus_explorer.ui.questions.exports import EXPORT_ANSWERS
from focus_explorer.ui.questions.sparsity import SPARSITY_ANSWERS
from focus_explorer.ui.questions.statistics import STATISTICS_ANSWERS

Answer = Callable[[Service, dict[str, Any]], dict[str, Any]]

ANSWERS: dict[str, Answer] = {
    "layer_cells": lambda service, asked: layer_cells(service.database, str(asked.get("run")), asked.get("layer")),
    "word_classes": lambda service, asked: word_classes(service.database, str(asked.get("run"))),
    **answers_groups.QUESTIONS,
    **SPARSITY_ANSWERS,
    **COMPARE_ANSWERS,
    **STATISTICS_ANSWERS,
    **EXPORT_ANSWERS,
}


def answer(service: Service, question: dict[str, Any]) -> dict[str, Any]:
    """What the page asked, as JSON-ready values.

    Args:
        question: `what` names the answer; the rest are its details.

    Raises:
        InputError: there is no such question, or its details make no sense.
    """
    what = question.get("what")
    if what not in ANSWERS:
        raise InputError(f"the page asked {what!r}", expected="a question this version knows", fix="reload the page")
    return ANSWERS[what](service, question)
