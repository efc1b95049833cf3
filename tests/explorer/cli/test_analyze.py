"""`focus-explorer analyze` and `compare`: what they print, and one error line for anything a user can put right."""

from __future__ import annotations

import io
import json
import sys

import pytest

from focus_explorer.cli.main import main
from tests.explorer.cli.conftest import one_error
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


def test_readable_summary(analyze, text_file, capsys):
    assert analyze(text_file) == 0
    out = capsys.readouterr().out
    for part in ("perplexity", "pairs kept", "largest group", "attention with routing", "even would be 12.5%"):
        assert part in out


def test_standard_input(analyze, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert analyze("-", "--json") == 0
    assert json.loads(capsys.readouterr().out)["num_tokens"] > 10


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "empty"),
        (b"  \n ", "empty"),
        (b"a", "1 token"),
        (b"\x7fELF\0\0\0", "binary"),
        (b"caf\xe9 au lait", "UTF-8"),
        (b"x\0y", "binary"),
    ],
)
def test_bad_files(analyze, tmp_path, capsys, content, part):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    one_error(capsys, analyze(str(path)), part)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--top-k", "9"], "top_k is 9"),
        (["--top-k", "two"], "invalid int value"),
        (["--assignment", "psychic"], "invalid choice"),
        (["--no-such-flag"], "unrecognized"),
    ],
)
def test_bad_flags(analyze, text_file, capsys, flags, part):
    one_error(capsys, analyze(text_file, *flags), part)


def test_odd_paths_give_one_line(text_file, tmp_path, capsys):
    one_error(capsys, main(["analyze", text_file, "--db", str(tmp_path / ("x" * 300))]), "x" * 50)
    one_error(capsys, main(["analyze", "~nosuchuser/x.txt"]), "~nosuchuser")
    one_error(capsys, main(["analyze", text_file, "--centroids", "y" * 5000, "--db", str(tmp_path / "d")]), "y" * 50)


def test_standard_input_has_a_limit(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a" * (20 * 2**20 + 5))))
    one_error(capsys, main(["analyze", "-"]), "20 MB or more")


def test_a_text_beyond_the_context_is_announced_before_it_runs(analyze, text_file, capsys):
    assert analyze(text_file, "--json") == 0
    assert "note: The text has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--top-k", "one"], "--top-k is 'one'"),
        (["--window", "8,x"], "--window is '8,x'"),
        (["--window", ","], "the grid is empty"),
        (["--top-k", "9"], "top-k is 9"),
        (["--repeats", "0"], "repeats is 0"),
    ],
)
def test_a_grid_that_cannot_be_measured_is_one_line(flags, part, capsys, service, run_id):
    one_error(capsys, main(["compare", run_id, *flags, "--db", str(service.database.path)]), part)
