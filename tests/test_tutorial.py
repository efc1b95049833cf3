"""The tutorial's way from a text to a figure in a PDF, with its own commands and its own LaTeX document."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

import pytest

from focus_explorer.cli.main import main
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from tests.helpers import ROOT

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FEWER = {"512": "160", "3": "1"}  # tokens and repeats, so that the test takes seconds


def blocks(language):
    """The page's blocks of a language, "" for those without one."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for named, text in found if named == language]


def commands(name):
    """The words after `focus-explorer` of every command of that name in the page's blocks."""
    lines = "".join(blocks("")).splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"focus-explorer {name} ")]


def _labels(printed):
    """What the lines of a summary are about; how many notes there are depends on the text."""
    return list(dict.fromkeys(line[:23].strip() for line in printed.splitlines()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with the page's text; a database lies in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOCUS_EXPLORER_DB", str(tmp_path / "runs.duckdb"))
    shutil.copy(ROOT / "assets" / "samples" / "novel.txt", "novel.txt")
    return tmp_path


def from_a_text_to_a_figure(folder, capsys, figure_file):
    """The page's own commands: an analysis, whose summary has the lines that are shown, a figure and a table."""
    [analyze] = commands("analyze novel.txt")
    assert main([FEWER.get(word, word) for word in analyze]) == 0
    [shown] = blocks("text")
    assert _labels(shown) == _labels(capsys.readouterr().out)

    [run] = list_runs(Service(folder / "runs.duckdb").database)
    own = {"RUN": str(run["run_id"]), "distances.pdf": figure_file}
    [figure], [table] = commands("figure"), commands("export")
    for command in (figure, table):
        assert main([own.get(word, word) for word in command]) == 0
    assert r"\toprule" in (folder / "groups.tex").read_text(encoding="utf-8")


def test_its_commands_run(folder, default_is_tiny, capsys):
    from_a_text_to_a_figure(folder, capsys, "distances.html")
    assert (folder / "distances.html").exists()


@pytest.mark.model
@pytest.mark.long
def test_from_a_text_to_a_figure_in_a_pdf(folder, capsys):
    from_a_text_to_a_figure(folder, capsys, "distances.pdf")
    assert (folder / "distances.pdf").read_bytes().startswith(b"%PDF")

    if shutil.which("lualatex") is None:
        pytest.skip("the figure was drawn; without lualatex no paper")
    [paper] = blocks("latex")
    (folder / "paper.tex").write_text(paper, encoding="utf-8")
    [compile_it] = re.findall(r"^lualatex .*$", PAGE, re.MULTILINE)
    engine, file = shlex.split(compile_it)
    words = [engine, "-interaction=nonstopmode", "-halt-on-error", file]
    made = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stdout[-3000:]
    assert "Output written on paper.pdf (1 page" in made.stdout
    assert "Overfull" not in made.stdout
