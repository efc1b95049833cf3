"""A text file, the analyze command over a tiny model, and the check of an error line."""

from __future__ import annotations

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
