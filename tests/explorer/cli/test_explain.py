"""`focus-explorer explain`: the token hurt most, a given token, and what cannot be explained."""

from __future__ import annotations

import json

import pytest

from focus_explorer.cli.main import main
from tests.explorer.cli.conftest import one_error

pytestmark = pytest.mark.slow


@pytest.fixture
def run_id(analyze, text_file, capsys):
    assert analyze(text_file, "--top-k", "1", "--window", "8", "--json") == 0
    return json.loads(capsys.readouterr().out)["run_id"]


def test_the_token_hurt_most_is_explained_in_words(run_id, tmp_path, capsys):
    assert main(["explain", run_id, "--db", str(tmp_path / "runs.duckdb")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("token ")
    assert "nats with full attention" in lines[0]
    assert "each added by itself" in lines[1]
    assert lines[-1].startswith("all ")
    assert (
        main(
            [
                "export",
                run_id,
                "--what",
                "missing_links",
                "--out",
                str(tmp_path / "l.csv"),
                "--db",
                str(tmp_path / "runs.duckdb"),
            ]
        )
        == 0
    )


def test_a_given_token_as_json(run_id, tmp_path, capsys):
    assert main(["explain", run_id, "--token", "40", "--json", "--db", str(tmp_path / "runs.duckdb")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run_id"], found["token"]) == (run_id, 40)
    assert found["links"]


def test_what_cannot_be_explained_is_one_line(run_id, tmp_path, capsys):
    database = ["--db", str(tmp_path / "runs.duckdb")]
    one_error(capsys, main(["explain", run_id, "--token", "0", *database]), "token 0", "1 to")
    one_error(capsys, main(["explain", "nothing", *database]), "nothing")
