"""Every message of the page to its browser: described for the docs, declared for the browser's scripts.

`python -m deploy.site.payloads` writes assets/js/core/payloads.d.ts again after a change of views/payloads.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from focus_explorer.views.payloads import PAYLOADS

DECLARATIONS = Path(__file__).parents[2] / "assets" / "js" / "core" / "payloads.d.ts"
HEAD = """\
// What the server sends: one interface for each payload of focus_explorer/views/payloads, which says what is in it.
// Written by `python -m deploy.site.payloads`; changes here are lost.
"""
SIMPLE = {int: "number", float: "number", str: "string", bool: "boolean", type(None): "null"}


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


def declarations() -> str:
    """The payloads as TypeScript."""
    return "\n".join([HEAD, *map(_interface, PAYLOADS.values())])


def _interface(payload: type) -> str:
    lines = (inspect.getdoc(payload) or "").splitlines()
    comment = [f"/** {lines[0]} */"] if len(lines) == 1 else ["/**", *(f" * {line}".rstrip() for line in lines), " */"]
    fields = [f"  {key}{'?' * optional}: {typescript(kind)};" for key, kind, optional in payload_fields(payload)]
    return "\n".join([*comment, f"export interface {payload.__name__} {{", *fields, "}", ""])


def payload_fields(payload: type) -> list[tuple[str, Any, bool]]:
    """(key, type, whether it may be absent) of a payload."""
    fields = []
    for key, kind in get_type_hints(payload, include_extras=True).items():
        optional = get_origin(kind) is NotRequired
        fields.append((key, get_args(kind)[0] if optional else kind, optional))
    return fields


def typescript(kind: Any) -> str:
    """A Python type as TypeScript."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in SIMPLE:
        return SIMPLE[kind]
    if is_typeddict(kind):
        return kind.__name__
    if origin is Literal:
        return " | ".join(map(json.dumps, inner))
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(typescript, inner)))
    if origin is tuple:
        return f"[{', '.join(map(typescript, inner))}]"
    if origin is list:
        of, is_union = typescript(inner[0]), get_origin(inner[0]) in (Union, types.UnionType, Literal)
        return f"({of})[]" if is_union else f"{of}[]"
    assert origin is dict, kind
    return f"Record<{typescript(inner[0])}, {typescript(inner[1])}>"


if __name__ == "__main__":
    DECLARATIONS.write_text(declarations(), encoding="utf-8")
