"""The words of the page's Python side stand in one file."""

from __future__ import annotations

import ast
from pathlib import Path

from focus_explorer.web import text

SAYING = {"label", "placeholder", "info"}
FIRST_IS_SHOWN = {"Button", "DownloadButton", "Tab", "Accordion", "done", "alert", "_bar"}


def _literal(node):
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_no_tab_holds_words_of_its_own():
    folder = Path(text.__file__).parent
    calls = [
        (path.name, node)
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    assert len(calls) > 200
    literals = []
    for name, call in calls:
        shown = [keyword.value for keyword in call.keywords if keyword.arg in SAYING]
        called = getattr(call.func, "attr", getattr(call.func, "id", ""))
        shown += call.args[:1] if called in FIRST_IS_SHOWN else []
        literals += [(name, value.lineno, ast.unparse(value)) for value in shown if _literal(value)]
    assert literals == []
