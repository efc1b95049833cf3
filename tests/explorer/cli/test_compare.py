"""The compare command."""

from __future__ import annotations

import json

import pytest

from focus_explorer.cli import main as cli
from focus_explorer.services.compare.settings import grid
from focus_explorer.services.service import Service
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


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
    found = json.loads(capsys.readouterr().out)
    assert found["cells"] == grid(Service(database), found["run_id"])["cells"]
    assert len(found["cells"]) == 6
    again = ["compare", found["run_id"], "--top-k", "2", "--window", "8", "--repeats", "1", "--db", str(database)]
    assert cli.main(again) == 0
    out = capsys.readouterr().out
    assert "Window and sinks only" in out
    assert "top-k 2, window 8" in out
    assert cli.main(["compare", str(text), "--top-k", "one", "--db", str(database)]) == 2
