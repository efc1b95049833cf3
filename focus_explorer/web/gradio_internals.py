"""All that the page uses of Gradio beyond its documented interface; a new version of Gradio is checked against this.

Nothing here imports Gradio before `import_gradio` has: that takes two fifths less time.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gradio as gr

QUEUE_SECONDS = 0.02  # between looks at an empty queue: Gradio's own 0.001 takes a tenth of a core for ever


def import_gradio() -> None:
    """Import Gradio unless that has been done, without its stub files.

    Gradio parses the source of each of its components meanwhile and rewrites a `.pyi` file next to it, which only
    editors read. With a later version that makes no stub files this is a plain import.
    """
    if "gradio" in sys.modules:
        return
    find = inspect.getfile

    def getfile(thing: Any) -> str:
        if str(getattr(thing, "__module__", "")).startswith("gradio."):
            raise OSError("no stub file is needed")  # Gradio then assumes that the class has no source
        return find(thing)

    inspect.getfile = getfile  # type: ignore[assignment]
    try:
        import gradio as gradio
    finally:
        inspect.getfile = find


def calm_queue(blocks: gr.Blocks) -> None:
    """Look at an empty queue every `QUEUE_SECONDS` only."""
    blocks._queue.sleep_when_free = QUEUE_SECONDS


def function_names(blocks: gr.Blocks) -> list[str]:
    """Names of the page's functions."""
    return [str(function.api_name) for function in blocks.fns.values() if function.api_name]


def event_header(name: str) -> str | None:
    """A header of the request that queued the event which this code works for; None without event or header."""
    from gradio.context import LocalContext

    found = getattr(LocalContext.request.get(None), "headers", {}).get(name)
    return None if found is None else str(found)


def session_user(app: Any, cookies: Mapping[str, str]) -> str:
    """The user that Gradio's login put into the session of these cookies; empty where there is none."""
    names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
    token = next((cookies[name] for name in names if name in cookies), None)
    return str(app.tokens.get(token) or "")
