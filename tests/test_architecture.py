"""The direction of dependencies holds: the runtime knows nothing of the explorer, views nothing of torch."""

from __future__ import annotations

import ast

import pytest

from tests.helpers import ROOT


def imported(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("path", sorted((ROOT / "runtime").rglob("*.py")), ids=lambda p: p.name)
def test_runtime_imports_nothing_of_the_screen(path):
    assert not imported(path) & {"focus_explorer", "gradio", "plotly", "umap", "pandas"}


@pytest.mark.parametrize("path", sorted((ROOT / "focus_explorer" / "views").rglob("*.py")), ids=lambda p: p.name)
def test_views_import_no_torch_and_no_database(path):
    assert not imported(path) & {"torch", "duckdb", "transformers", "gradio"}


def test_one_place_reads_the_environment():
    allowed = {"settings.py"}
    for path in [*(ROOT / "runtime").rglob("*.py"), *(ROOT / "focus_explorer").rglob("*.py")]:
        if path.name not in allowed:
            assert "os.environ" not in path.read_text(), path
