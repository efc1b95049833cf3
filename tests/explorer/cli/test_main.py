"""The command line as scripts see it: exit status, one JSON object, one error line."""

from __future__ import annotations

import io
import json
import sys

import pandas as pd
import pytest

from focus_explorer.cli.main import main
from tests.explorer.conftest import TEXT


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def analyze(tmp_path, model_folder):
    common = ["--model", model_folder, "--centroids", "random", "--db", str(tmp_path / "runs.duckdb"), "--repeats", "1"]
    return lambda *arguments: main(["analyze", *arguments, *common])


def one_error(capsys, status, *parts):
    captured = capsys.readouterr()
    errors = [line for line in captured.err.splitlines() if line.startswith("error: ")]
    assert status == 2
    assert len(errors) == 1
    assert "Traceback" not in captured.err
    for part in parts:
        assert part in errors[0]
    assert captured.out == ""


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
    assert len(pd.read_csv(out)) == 2 * 4


def test_readable_summary(analyze, text_file, capsys):
    assert analyze(text_file) == 0
    out = capsys.readouterr().out
    for part in ("perplexity", "pairs kept", "largest group", "attention alone", "even would be 25.0%"):
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
        (["--top-k", "5"], "top_k is 5"),
        (["--window", "-1"], "window is -1"),
        (["--sinks", "-1"], "num_sinks is -1"),
        (["--max-tokens", "0"], "max_tokens is 0"),
        (["--top-k", "two"], "invalid int value"),
        (["--assignment", "psychic"], "invalid choice"),
        (["--no-such-flag"], "unrecognized"),
    ],
)
def test_bad_flags(analyze, text_file, capsys, flags, part):
    one_error(capsys, analyze(text_file, *flags), part)


def test_unknown_model_run_and_database(text_file, tmp_path, capsys):
    db = str(tmp_path / "x.duckdb")
    one_error(capsys, main(["analyze", text_file, "--model", "who-knows", "--db", db]), "who-knows")
    one_error(capsys, main(["export", "nope", "--what", "groups", "--format", "csv", "--out", "o", "--db", db]), "nope")
    one_error(capsys, main(["analyze", text_file, "--db", str(tmp_path)]), str(tmp_path))
    one_error(capsys, main(["frobnicate"]), "frobnicate")
    one_error(capsys, main(["analyze", str(tmp_path / "none.txt")]), "none.txt")


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


def test_training_mistakes_are_known_before_training(tmp_path, model_folder, text_file, capsys):
    short = tmp_path / "short.txt"
    short.write_text("too short")
    common = ["train", "--text", text_file, "--model", model_folder, "--steps", "100000", "--seq-len", "64"]
    one_error(capsys, main([*common, "--val", str(short), "--out", str(tmp_path / "a.safetensors")]), "9 tokens")
    blocked = f"{text_file}/b.safetensors"
    one_error(capsys, main([*common, "--out", blocked]), "cannot write")
    out = str(tmp_path / "c.safetensors")
    one_error(capsys, main([*common, "--out", out, "--hard", "--gate", "paper"]), "--hard")


def test_centroids_check(tmp_path, capsys):
    assert main(["centroids", "check", "default", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["num_groups"] == 8
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\x10\0\0\0\0\0\0\0{broken")
    one_error(capsys, main(["centroids", "check", str(bad)]), "bad.safetensors")


def test_train_writes_a_usable_file(tmp_path, model_folder, text_file, capsys):
    out = tmp_path / "c.safetensors"
    flags = [
        "--groups",
        "3",
        "--routing-dim",
        "4",
        "--steps",
        "2",
        "--seq-len",
        "32",
        "--window",
        "8",
        "--top-k",
        "1",
        "--snapshots",
        "1",
    ]
    arguments = ["train", "--text", text_file, "--val", text_file, "--model", model_folder, "--out", str(out), *flags]
    one_error(capsys, main(arguments), "no text to train on")
    val = tmp_path / "val.txt"
    val.write_text(TEXT[::-1])
    arguments[4] = str(val)
    assert main([*arguments, "--json"]) == 0
    validation = json.loads(capsys.readouterr().out)["training"]["validation"]
    assert {"full", "k=1", "k=2"} <= set(validation)
    assert sorted(path.name for path in tmp_path.glob("c.*")) == ["c.safetensors", "c.step-000001.safetensors"]
    for path in tmp_path.glob("c.*"):
        assert main(["centroids", "check", str(path), "--model", model_folder]) == 0
        assert "K = 3" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--port", "70000"], "port 70000"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--centroids", "nowhere.safetensors"], "nowhere.safetensors"),
        (["--model", "who-knows"], "who-knows"),
    ],
)
def test_serve_refuses_before_it_serves(tmp_path, capsys, flags, part):
    assert main(["serve", "--db", str(tmp_path / "x.duckdb"), *flags]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert part in errors[0]


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("focus-explorer ")
