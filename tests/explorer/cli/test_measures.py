"""`focus-explorer explain` and `statistics`."""

from __future__ import annotations

import json

import pytest

from focus_explorer.cli.main import main
from focus_explorer.statistics.tables import statistics_table
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics import measure_run
from tests.explorer.cli.conftest import one_error

pytestmark = pytest.mark.slow


@pytest.fixture
def run(analyze, text_file, capsys):
    assert analyze(text_file, "--top-k", "1", "--window", "8", "--json") == 0
    return json.loads(capsys.readouterr().out)["run_id"]


def test_the_token_hurt_most_is_explained_in_words(run, tmp_path, capsys):
    assert main(["explain", run, "--db", str(tmp_path / "runs.duckdb")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("token ")
    assert "nats with full attention" in lines[0]
    assert "each added by itself" in lines[1]
    assert lines[-1].startswith("all ")
    words = ["export", run, "--what", "missing_links", "--out", str(tmp_path / "l.csv")]
    assert main([*words, "--db", str(tmp_path / "runs.duckdb")]) == 0


def test_a_given_token_as_json(run, tmp_path, capsys):
    assert main(["explain", run, "--token", "40", "--json", "--db", str(tmp_path / "runs.duckdb")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run_id"], found["token"]) == (run, 40)
    assert found["links"]


def test_what_cannot_be_explained_is_one_line(run, tmp_path, capsys):
    database = ["--db", str(tmp_path / "runs.duckdb")]
    one_error(capsys, main(["explain", run, "--token", "0", *database]), "token 0", "1 to")
    one_error(capsys, main(["explain", "nothing", *database]), "nothing")


TEXT = "The quiet harbour slept. A cat sat on the wooden wall, and nobody saw it 🙂. Why would they look?\n\n" * 8


@pytest.fixture(scope="module")
def measured(tmp_path_factory, model_folder):
    """A run with tags and random centroids."""
    service = Service(tmp_path_factory.mktemp("statistics") / "runs.duckdb")
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=1)
    run_id = analyze(service, TEXT, request, command="focus-explorer test")
    assert measure_run(service, run_id) == []
    return service, run_id


def test_the_command_says_the_same_as_the_tables(measured, capsys):
    service, run_id = measured
    assert main(["statistics", run_id, "--db", str(service.database.path), "--no-measure", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["statistics"] == statistics_table(service.database, run_id, "statistics").to_pylist()
    assert main(["statistics", run_id, "--db", str(service.database.path), "--no-measure"]) == 0
    text = capsys.readouterr().out
    assert "sentences" in text
    assert "Mutual information (NMI), part of speech" in text
    assert "nan" not in text
    assert main(["statistics", "none", "--db", str(service.database.path)]) == 2
    assert "there is no run 'none'" in capsys.readouterr().err


@pytest.mark.slow
def test_agreement_is_added_on_request(service, run_id, capsys):
    words = ["statistics", run_id, "--with", run_id, "--db", str(service.database.path), "--no-measure", "--json"]
    assert main(words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"run_id", "notes", "statistics", "agreement"}
    assert {row["adjusted_rand"] for row in printed["agreement"]} == {1.0}
    assert main(words[:-1]) == 0
    assert "agreement with the other run over 2 layers: adjusted Rand 1.00 to 1.00" in capsys.readouterr().out
    one_error(capsys, main(["statistics", run_id, "--with", "none", *words[4:]]), "none")
