"""A stored run measured further, described, and what is said when something is missing."""

from __future__ import annotations

import json
import sys

import pytest

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.services.analyze import AnalyzeRequest, analyze
from focus_explorer.services.service import Service
from focus_explorer.services.statistics.measure import measure_run
from focus_explorer.statistics.run_sample import NO_RANDOM, NO_TAGGER, study_run
from focus_explorer.statistics.tables import NAMES, agreement_between, statistics_table, study
from focus_runtime.text import tagging

TEXT = "The quiet harbour slept. A cat sat on the wooden wall, and nobody saw it 🙂. Why would they look?\n\n" * 8


@pytest.fixture(scope="module")
def stored(tmp_path_factory, model_folder):
    service = Service(tmp_path_factory.mktemp("statistics") / "runs.duckdb")
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=1)
    return service, analyze(service, TEXT, request, command="focus-explorer test")


@pytest.fixture(scope="module")
def measured(stored):
    service, run_id = stored
    bare = study(service.database, run_id).sample
    assert bare.notes == (NO_TAGGER, NO_RANDOM)
    assert bare.random is None
    assert list(bare.schemes) == ["word"]
    assert measure_run(service, run_id, attention=True) == []
    return service, run_id


def test_what_is_measured_is_kept_and_not_measured_twice(measured, monkeypatch):
    service, run_id = measured
    have = study_run(service.database, run_id)
    assert have["tagger"].startswith("spaCy 3.")
    assert have["random_seed"] == 0
    assert have["attention_random"]
    assert have["random_perplexity"] > 1
    monkeypatch.setattr(service.models, "lease", None)  # calling it would fail
    assert measure_run(service, run_id, attention=True) == []


def test_every_table_of_a_measured_run_has_rows_and_the_baselines(measured):
    service, run_id = measured
    sample = study(service.database, run_id).sample
    assert sample.notes == ()
    assert list(sample.schemes) == ["pos", "dep"]
    assert set(sample.mass) == {"focus", "random"}
    for name in NAMES:
        assert statistics_table(service.database, run_id, name).num_rows > 0, name
    layers = fetch(service.database, "layers", run_id=run_id).to_pylist()
    kept = {row["layer"]: row["retained_pairs"] for row in layers}
    mass = fetch(service.database, "attention_mass", run_id=run_id).to_pylist()
    for row in statistics_table(service.database, run_id, "statistics").to_pylist():
        if row["scope"] == "layer" and row["statistic"] == "pairs_kept":  # counted here and by the engine
            assert row["value"] == pytest.approx(kept[row["layer"]], abs=1e-9)
        if row["scope"] == "layer" and row["statistic"] == "mass_kept":
            heads = [one["mass_kept"] for one in mass if one["layer"] == row["layer"]]
            assert row["value"] == pytest.approx(sum(heads) / len(heads), abs=1e-6)
    with pytest.raises(InputError, match="no statistics 'nothing'"):
        statistics_table(service.database, run_id, "nothing")


def test_agreement_of_two_runs_needs_the_same_tokens(measured, model_folder):
    service, run_id = measured
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=2, window=8, num_sinks=2, repeats=1)
    other = analyze(service, TEXT, request, command="focus-explorer test")
    rows = agreement_between(service.database, run_id, other).to_pylist()
    assert [row["layer"] for row in rows] == [0, 1]
    assert rows[0]["adjusted_rand"] == 1
    short = analyze(service, TEXT[:90], request, command="focus-explorer test")
    with pytest.raises(InputError, match="have other tokens"):
        agreement_between(service.database, run_id, short)


def test_the_command_says_the_same_as_the_tables(measured, capsys):
    service, run_id = measured
    assert main(["statistics", run_id, "--db", str(service.database.path), "--no-measure", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["statistics"] == statistics_table(service.database, run_id, "statistics").to_pylist()
    assert main(["statistics", run_id, "--db", str(service.database.path), "--no-measure"]) == 0
    text = capsys.readouterr().out
    assert "sentences" in text
    assert "normalised mutual information, part of speech" in text
    assert "nan" not in text
    assert main(["statistics", "none", "--db", str(service.database.path)]) == 2
    assert "there is no run 'none'" in capsys.readouterr().err


def test_without_the_tagger_the_rest_goes_on(stored, monkeypatch, capsys):
    service, run_id = stored
    tagging._pipeline.cache_clear()
    monkeypatch.setitem(sys.modules, tagging.PACKAGE, None)
    problems = measure_run(service, run_id, random=False, again=True)
    tagging._pipeline.cache_clear()
    assert len(problems) == 1
    assert "the tagger is not installed" in problems[0]
    assert "make setup" in problems[0]
