"""`focus-explorer statistics`: what it prints is what the tables hold, and one line for what it cannot read."""

from __future__ import annotations

import json

import pytest

from focus_explorer.cli.main import main
from focus_explorer.statistics.tables import statistics_table
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics.measure import measure_run
from tests.explorer.cli.conftest import one_error, options_in_help

pytestmark = pytest.mark.slow

TEXT = "The quiet harbour slept. A cat sat on the wooden wall, and nobody saw it 🙂. Why would they look?\n\n" * 8


@pytest.fixture(scope="module")
def measured(tmp_path_factory, model_folder):
    """A run with tags and random centroids."""
    service = Service(tmp_path_factory.mktemp("statistics") / "runs.duckdb")
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=1)
    run_id = analyze(service, TEXT, request, command="focus-explorer test")
    assert measure_run(service, run_id) == []
    return service, run_id


def test_help_names_the_options(capsys):
    assert options_in_help(capsys, "statistics") == {"--with", "--attention", "--no-measure", "--db", "--json"}


def test_the_command_says_the_same_as_the_tables(measured, capsys):
    service, run_id = measured
    assert main(["statistics", run_id, "--db", str(service.database.path), "--no-measure", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["statistics"] == statistics_table(service.database, run_id, "statistics").to_pylist()
    assert main(["statistics", run_id, "--db", str(service.database.path), "--no-measure"]) == 0
    text = capsys.readouterr().out
    assert "sentences" in text
    assert "normalised mutual information, part of speech" in text
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
