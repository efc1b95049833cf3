"""A text of two tokens has one scored token, which has no interval and is not "tokens": all that is written says so."""

from __future__ import annotations

import math

import pytest

from focus_explorer.cli.main import main
from focus_explorer.exports.figures.write import figure
from focus_explorer.exports.report.numbers import read_run
from focus_explorer.exports.report.write import render
from focus_explorer.exports.tables.write import write_table
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.compare.runs import compare_runs
from focus_explorer.usecases.compare.settings import grid_rows, measure_grid
from focus_explorer.usecases.run_payload import load_run
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(service, model_folder):
    """Two runs of the same two tokens, the first measured at other settings."""
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=1, repeats=1, max_tokens=2)
    runs = [analyze(service, TEXT, request, command="") for _ in range(2)]
    measure_grid(service, runs[0], [1], [0], repeats=1)
    return runs


def printed(capsys, *words):
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_measured_settings_have_no_ends(service, runs):
    cells = grid_rows(service, runs[0])
    assert {(cell["scored"], cell["delta_low"], cell["delta_high"]) for cell in cells} == {(1, None, None)}
    assert all(math.isfinite(cell["delta_mean"]) for cell in cells)
    assert compare_runs(service, *runs)["difference"] == {"mean": 0.0, "low": None, "high": None, "count": 1}


def test_figures_say_that_there_is_no_interval(service, runs):
    drawn = figure(service.database, runs[0], "loss")
    assert "(no interval)" in drawn.layout.meta["caption"]
    assert drawn.layout.title.text.startswith("n = 1 scored token, mean ")
    assert drawn.layout.title.text.endswith("(no interval)")
    drawn = figure(service.database, runs[0], "quality")
    assert ", one point per setting, without intervals. Settings: " in drawn.layout.meta["caption"]
    assert drawn.layout.title.text == "n = 1 scored token, 3 settings"
    assert all(trace.error_y.array is None for trace in drawn.data)
    assert figure(service.database, runs[0], "timings").layout.title.text == "n = 1 repeat, 2 tokens"


def test_a_report_says_that_there_is_no_interval(service, runs):
    words = " ".join(render([read_run(service.database, runs[0])]).split())
    assert "(no interval, 1 token). One scored token has no interval" in words
    assert "without intervals: one token was scored." in words
    assert "in nats a token, without interval." in words


def test_tables_and_lines_say_that_there_is_no_interval(service, runs, tmp_path, capsys):
    write_table(service.database, runs[0], "comparisons", "markdown", tmp_path / "settings.md")
    assert "interval" not in (tmp_path / "settings.md").read_text()
    database = str(service.database.path)
    compare = ["compare", runs[0], "--top-k", "1", "--window", "0", "--repeats", "1", "--db", database]
    assert "(no interval, 1 token)" in printed(capsys, *compare)
    changed = printed(capsys, "what-if", runs[0], "--set", "silence:0:A", "--db", database)
    assert "nats per token (no interval)" in changed


def test_times_of_one_repeat_have_no_range(tmp_path, model_folder, capsys):
    (tmp_path / "text.txt").write_text(TEXT)
    words = ["analyze", str(tmp_path / "text.txt"), "--model", model_folder, "--centroids", "random", "--max-tokens"]
    lines = printed(capsys, *words, "2", "--repeats", "1", "--db", str(tmp_path / "runs.duckdb")).splitlines()
    assert any(line.startswith("perplexity") and line.endswith(", 1 scored token") for line in lines)
    times = next(line for line in lines if line.startswith("forward pass"))
    assert " ms, Focus " in times
    assert " ms, timed once: " in times


def test_the_page_is_told_that_there_is_none(service, runs):
    quality = load_run(service.database, runs[0])["quality"]
    assert (quality["scored"], quality["delta_low"], quality["delta_high"]) == (1, None, None)
