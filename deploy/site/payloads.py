"""Every message of the page to its browser, with its fields."""

from __future__ import annotations

import inspect
import re
import sys
from itertools import groupby

from focus_explorer.views.payloads import PAYLOADS


def payloads() -> str:
    """Markdown: a section a module, in it a part a payload with a table of fields; names of payloads are links."""
    parts = []
    for module, found in groupby(PAYLOADS.values(), key=lambda payload: payload.__module__):
        title = module.rsplit(".", 1)[-1].replace("_", " ").capitalize()
        parts.append(f"## {title}\n\n{inspect.getdoc(sys.modules[module])}")
        parts += [_described(payload) for payload in found]
    return "\n\n".join(parts)


def _described(payload: type) -> str:
    rows = [f"| `{name}` | {_type(kind)} |" for name, kind in payload.__annotations__.items()]
    table = "\n".join(["| field | type |", "|---|---|", *rows])
    return f"### {payload.__name__}\n\n{inspect.getdoc(payload)}\n\n{table}"


def _type(kind: object) -> str:
    """A field's type as the source has it."""
    text = getattr(kind, "__forward_arg__", str(kind))
    words = re.split(r"(\w+Payload)", text)
    return "".join(f"[{word}](#{word.lower()})" if word in PAYLOADS else word and f"`{word}`" for word in words)
