"""A text file, the analyze command over a tiny model, and checks of an error line and of a help page."""

from __future__ import annotations

import re

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


def options_in_help(capsys, *command):
    """Long options that `--help` of a command names."""
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert not end.value.code
    out = capsys.readouterr().out
    assert out.startswith(f"usage: focus-explorer {' '.join(command)} ")
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", out)) - {"--help"}
