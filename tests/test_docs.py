"""Documentation is run: code blocks execute, commands parse, and every database column is described."""

from __future__ import annotations

import functools
import re
import shlex

import pytest

from focus_explorer.cli.main import parser
from focus_runtime.store.database import Database
from tests.helpers import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def blocks(path, language):
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", path.read_text(), re.S | re.M)
    return [text for named, text in found if named == language]


def run_blocks(path):
    for block in blocks(path, "python"):
        exec(compile(block, str(path), "exec"), {})


SHOWN = [path for path in PAGES if blocks(path, "python")]


TINY = [path for path in SHOWN if path.name not in ("README.md", "howto-api.md", "evaluation.md")]


@pytest.mark.slow
@pytest.mark.parametrize("path", TINY, ids=lambda path: path.name)
def test_python_blocks_run(path, default_is_tiny):
    """The others run below: a tiny model saves them nothing, or its tokens are letters where words are needed."""
    run_blocks(path)


@pytest.mark.model
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name, marks=pytest.mark.long if path.parent.name == "docs" else ()) for path in SHOWN],
)
def test_python_blocks_run_on_the_default_model(path):
    run_blocks(path)


command_line = functools.cache(parser)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_commands_parse_and_links_lead_somewhere(path):
    text = path.read_text()
    plain = "".join(blocks(path, "")).replace("\\\n", " ")
    inline = [c for c in re.findall(r"`(focus-explorer [^`]+)`", text) if "FILE" not in c or "=" not in c]
    for command in [line for line in map(str.strip, plain.splitlines()) if line.startswith("focus-explorer")] + inline:
        words = shlex.split(command)[1:]
        if len(words) > 1 or words == ["runs"]:
            command_line().parse_args(words)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in target or (path.parent / target).exists(), target


def test_schema_page_names_every_column(tmp_path):
    text = (ROOT / "docs" / "schema.md").read_text()
    with Database(tmp_path / "a.duckdb").read() as connection:
        columns = connection.execute("SELECT table_name, column_name FROM information_schema.columns").fetchall()
    assert len(columns) > 60
    for table, column in columns:
        assert table in text
        assert re.search(rf"\b{column}\b", text), f"{table}.{column}"
