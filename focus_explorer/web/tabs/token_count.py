"""How many tokens the text in the form has, and whether it will be cut, before Explore is pressed."""

from __future__ import annotations

from typing import Any

import gradio as gr

from focus_explorer.errors import InputError
from focus_explorer.usecases.names import known_model
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import count_tokens
from focus_explorer.usecases.visitors.service import visitor_limits
from focus_explorer.web.text import MESSAGES
from focus_explorer.words import counted

# The text of the run that the page opened with is not sent: it is known, and a tokenizer takes seconds to import.
SENT = "(words, model, limit, special, run) => [run && run.text === words ? '' : words, model, limit, special, null]"


def _count(service: Service, name: str, words: str, special: str) -> int | None:
    try:
        if service.names is not None:
            service.names.text(words)
        return count_tokens(service, known_model(service, name), words, special)
    except InputError:
        return None


def connect(
    service: Service, text: gr.Textbox, form: dict[str, Any], like_run: gr.JSON, count: gr.HTML, whole: gr.Button
) -> None:
    """Count while somebody types, and let a press analyse the whole text.

    Args:
        service: counts.
        text: field of the text.
        form: fields of the settings by name.
        like_run: what the form was filled with.
        count: shows the number.
        whole: button that takes the limit away, shown where the text would be cut.
    """
    model, limit, special_tokens = form["model"], form["max_tokens"], form["special_tokens"]
    fixed = visitor_limits(service) is not None  # nobody may take the limit away

    def said(words: str, name: str | None, most: float | None, special: str, _: Any) -> tuple[str, Any]:
        tokens = _count(service, name or "", words, special) if words else None
        cut = bool(tokens and most and tokens > most)
        if tokens is None:
            return "", gr.update(visible=False)
        there = counted(tokens, "token")
        line = MESSAGES["cut"].format(tokens=there, limit=int(most or 0)) if cut else there
        return line, gr.update(visible=cut and not fixed)

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    # `change`, for Gradio keeps the first `input` after it filled a field to itself.
    gr.on(
        [text.change, model.change, limit.change, special_tokens.change],
        said,
        [text, model, limit, special_tokens, like_run],
        [count, whole],
        js=SENT,
        trigger_mode="always_last",
        **quiet,
    )
    whole.click(lambda: 0, None, limit, **quiet)
