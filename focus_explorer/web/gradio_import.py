"""Gradio's import without its stub files.

While it is imported, Gradio parses the source of each of its components and rewrites a `.pyi` file next to it. That is
two fifths of the import, and a write into the installation. Only editors read those files.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any


def import_gradio() -> None:
    """Import Gradio unless that has been done; where a later version makes no stub files, a plain import."""
    if "gradio" in sys.modules:
        return
    find = inspect.getfile

    def getfile(thing: Any) -> str:
        if str(getattr(thing, "__module__", "")).startswith("gradio."):
            raise OSError("no stub file is needed")  # which Gradio takes for a class without a source
        return find(thing)

    inspect.getfile = getfile  # type: ignore[assignment]
    try:
        import gradio as gradio
    finally:
        inspect.getfile = find
