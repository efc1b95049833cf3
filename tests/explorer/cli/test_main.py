"""The command line as scripts see it: exit status, one JSON object, one error line."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from focus_explorer.cli.main import main, parser
from tests.explorer.cli.conftest import one_error


@pytest.mark.slow
def test_analyze_list_and_export(analyze, text_file, tmp_path, capsys):
    assert analyze(text_file, "--top-k", "1", "--window", "8", "--sinks", "2", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert {"run_id", "num_tokens", "perplexity", "retained_pairs", "dominance", "milliseconds", "db"} <= set(result)
    assert result["config"]["window"] == 8
    assert main(["runs", "--db", result["db"], "--json"]) == 0
    assert [row["run_id"] for row in json.loads(capsys.readouterr().out)] == [result["run_id"]]
    out = tmp_path / "groups.csv"
    arguments = ["export", result["run_id"], "--what", "groups", "--format", "csv", "--out", str(out)]
    assert main([*arguments, "--db", result["db"]]) == 0
    assert len(pd.read_csv(out)) == 2 * 8


def test_unknown_model_run_and_database(text_file, tmp_path, capsys):
    db = str(tmp_path / "x.duckdb")
    one_error(capsys, main(["analyze", text_file, "--model", "who-knows", "--db", db]), "who-knows")
    one_error(capsys, main(["export", "nope", "--what", "groups", "--format", "csv", "--out", "o", "--db", db]), "nope")
    one_error(capsys, main(["analyze", text_file, "--db", str(tmp_path)]), str(tmp_path))
    one_error(capsys, main(["frobnicate"]), "frobnicate")
    one_error(capsys, main(["analyze", str(tmp_path / "none.txt")]), "none.txt")


def test_a_lack_of_memory_is_one_line_and_a_defect_is_not(monkeypatch, capsys):
    def listed(error):
        def run(*_):
            raise error

        monkeypatch.setattr("focus_explorer.cli.runs.list_runs", run)
        return main(["runs"])

    assert listed(MemoryError()) == 2
    assert capsys.readouterr().err == "error: the memory ran out; close other programs, or give a shorter text\n"
    with pytest.raises(RuntimeError, match="a defect"):
        listed(RuntimeError("a defect"))


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("focus-explorer ")


def test_the_help_of_a_chosen_command_equals_that_of_the_whole_parser():
    whole = parser()
    assert parser([]).format_help() == whole.format_help()
    for name in ("runs", "train"):
        assert subparser(parser([name]), name).format_help() == subparser(whole, name).format_help()


def subparser(whole, name):
    return next(action for action in whole._actions if action.dest == "command").choices[name]
