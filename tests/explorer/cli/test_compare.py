"""The compare command."""

from __future__ import annotations

import json

import pytest

from focus_explorer.cli import main as cli
from focus_explorer.usecases.compare.settings import grid
from focus_explorer.usecases.service import Service
from tests.explorer.cli.conftest import one_error, options_in_help
from tests.explorer.conftest import TEXT


def test_help_names_the_options(capsys):
    named = {"--top-k", "--window", "--repeats", "--max-tokens", "--model", "--centroids", "--db", "--json"}
    named |= {"--device", "--dtype", "--backend", "--budget", "--window-growth"}
    assert options_in_help(capsys, "compare") == named


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
    one_error(capsys, cli.main(["compare", run_id, *flags, "--db", str(service.database.path)]), part)


@pytest.mark.slow
def test_the_command_measures_the_same(tmp_path, model_folder, capsys):
    text, database = tmp_path / "text.txt", tmp_path / "runs.duckdb"
    text.write_text(TEXT)
    words = [
        "compare",
        str(text),
        "--model",
        model_folder,
        "--centroids",
        "random",
        "--top-k",
        "1",
        "--window",
        "8,16",
        "--repeats",
        "1",
        "--max-tokens",
        "100",
        "--db",
        str(database),
        "--json",
    ]
    assert cli.main(words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["cells"] == grid(Service(database), printed["run_id"])["cells"]
    assert len(printed["cells"]) == 6
    again = ["compare", printed["run_id"], "--top-k", "2", "--window", "8", "--repeats", "1", "--db", str(database)]
    assert cli.main(again) == 0
    out = capsys.readouterr().out
    assert "Window and sinks only" in out
    assert "top-k 2, window 8" in out
    assert cli.main(["compare", str(text), "--top-k", "one", "--db", str(database)]) == 2
