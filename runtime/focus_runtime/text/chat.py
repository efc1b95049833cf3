"""A chat as turns -> the text that a model's own template makes of it."""

from __future__ import annotations

import json
import re
from typing import Any

from focus_runtime.errors import TextError

ROLES = ("system", "user", "assistant")
_TURN = re.compile(rf"^({'|'.join(ROLES)}):[ \t]*", re.IGNORECASE | re.MULTILINE)
_FORM = 'lines that begin with user:, assistant: or system:, or a JSON list of {"role": ..., "content": ...}'

Turn = dict[str, str]


def chat_text(tokenizer: Any, text: str) -> str:
    """The text that the model's own template makes of the turns of a chat.

    Args:
        tokenizer: of the model.
        text: the turns, see `read_turns`.

    Raises:
        TextError: the text has no turns, the model has no template, or its template refuses the turns.
    """
    turns = read_turns(text)
    if not tokenizer.chat_template:
        raise TextError(
            "the model has no chat template", expected="a model that was trained on chats", fix="leave out --chat"
        )
    try:
        made: str = tokenizer.apply_chat_template(turns, tokenize=False)
    except Exception as error:  # a template raises errors of its own, whose classes transformers does not name
        raise TextError(
            f"the chat template of the model refuses the turns: {error}",
            expected="roles and an order of turns that it allows",
        ) from error
    return made


def read_turns(text: str) -> list[Turn]:
    """The turns of a chat.

    Args:
        text: a JSON list of objects with `role` and `content`; or lines, of which each that begins with "user:",
            "assistant:" or "system:" begins a turn.

    Raises:
        TextError: it has neither form.
    """
    if text.lstrip().startswith("["):
        return _from_json(text)
    marks = list(_TURN.finditer(text))
    if not marks or text[: marks[0].start()].strip():
        raise TextError("the text does not begin with a turn of a chat", expected=_FORM, fix="leave out --chat")
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    return [
        {"role": mark[1].lower(), "content": text[mark.end() : end].strip()}
        for mark, end in zip(marks, ends, strict=True)
    ]


def _from_json(text: str) -> list[Turn]:
    try:
        turns = json.loads(text)
    except json.JSONDecodeError as error:
        raise TextError(f"the turns are not valid JSON: {error}", expected=_FORM) from error
    for number, turn in enumerate(turns, 1):
        if not isinstance(turn, dict) or not all(isinstance(turn.get(name), str) for name in ("role", "content")):
            raise TextError(f"turn {number} of the chat lacks a role or a content that is text", expected=_FORM)
    if not turns:
        raise TextError("the chat has no turn", expected=_FORM)
    return [{"role": turn["role"], "content": turn["content"]} for turn in turns]
