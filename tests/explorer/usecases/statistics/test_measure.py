"""A stored run measured further, described, and what is said when something is missing."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.statistics import NAMES
from focus_explorer.statistics.sample import NO_RANDOM, NO_TAGGER, stored_measurements
from focus_explorer.statistics.tables import agreement_between, run_statistics, statistics_table
from focus_explorer.usecases import statistics
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.runs import run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics import measure_random, measure_run
from focus_runtime.budget import HeadException
from focus_runtime.run.random_baseline import COMPARISON_SEED
from focus_runtime.store.measurements import write_attention_queries
from focus_runtime.text import tagging

pytestmark = pytest.mark.slow

TEXT = "The quiet harbour slept. A cat sat on the wooden wall, and nobody saw it 🙂. Why would they look?\n\n" * 8


@pytest.fixture(scope="module")
def stored(tmp_path_factory, model_folder):
    service = Service(tmp_path_factory.mktemp("statistics") / "runs.duckdb")
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=1)
    return service, analyze(service, TEXT, request, command="focus-explorer test")


@pytest.fixture(scope="module")
def measured(stored):
    service, run_id = stored
    bare = run_statistics(service.database, run_id).sample
    assert bare.notes == (NO_TAGGER, NO_RANDOM)
    assert bare.random is None
    assert list(bare.schemes) == ["word"]
    assert measure_run(service, run_id, attention=True) == []
    return service, run_id


def test_what_is_measured_is_kept_and_not_measured_twice(measured, monkeypatch):
    service, run_id = measured
    have = stored_measurements(service.database, run_id)
    assert have["tagger"].startswith("spaCy 3.")
    assert have["random_seed"] == COMPARISON_SEED, "the run's own centroids have seed 0"
    assert have["attention_random"]
    assert have["random_perplexity"] > 1
    monkeypatch.setattr(service.models, "lease", None)  # calling it would fail
    assert measure_run(service, run_id, attention=True) == []


def test_every_table_of_a_measured_run_has_rows_and_the_baselines(measured):
    service, run_id = measured
    sample = run_statistics(service.database, run_id).sample
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


def test_without_the_tagger_the_rest_is_measured(stored, monkeypatch, capsys):
    service, run_id = stored
    tagging._pipeline.cache_clear()
    monkeypatch.setitem(sys.modules, tagging.PACKAGE, None)
    monkeypatch.setattr(statistics, "stored_measurements", lambda *_: {})
    problems = measure_run(service, run_id, random=False)
    tagging._pipeline.cache_clear()
    assert len(problems) == 1
    assert "the tagger is not installed" in problems[0]
    assert "make setup" in problems[0]


def test_a_stored_baseline_that_is_the_run_itself_is_measured_again(stored, model_folder):
    """Versions before 0.2 gave a run of random centroids the seed of its own as baseline."""
    service, _ = stored
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=1)
    run_id = analyze(service, TEXT[:200], request)
    run = fetch_run(service.database, run_id)
    again = partial(measure_random, service, run, lambda stage, part: None)
    again(seed=0)
    layers = np.unique(fetch(service.database, "baseline_assignments", run_id=run_id)["layer"].to_numpy())
    stale = {"random": {int(layer): np.full((4, 4), 0.25) for layer in layers}}
    write_attention_queries(service.database, run_id, stale)
    again(seed=0)
    assert fetch(service.database, "attention_queries", run_id=run_id).num_rows == 4 * layers.size
    assert measure_run(service, run_id, tags=False) == []
    assert stored_measurements(service.database, run_id)["random_seed"] == COMPARISON_SEED
    assert fetch(service.database, "attention_queries", run_id=run_id).num_rows == 0


def test_a_recorded_seed_gives_the_recorded_baseline(stored, model_folder):
    """A bundle records the seed of its baseline, also of one made before the rule."""
    service, _ = stored
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, num_sinks=2, repeats=1)
    run_id = analyze(service, TEXT[:200], request)
    measure_random(service, fetch_run(service.database, run_id), lambda stage, part: None, seed=0)
    rows = [fetch(service.database, name, run_id=run_id) for name in ("all_assignments", "baseline_assignments")]
    own, baseline = (row["membership"].to_numpy() for row in rows)
    assert (own == baseline).mean() > 0.9  # but for near ties; another seed gives 0.2


def test_a_first_layer_without_distant_pairs_hides_those_of_no_other(service, model_folder):
    """Its heads have a window as long as the text."""
    budget = (HeadException(layer=0, window=500),)
    how = AnalyzeRequest(model=model_folder, centroids="random", window=4, num_sinks=0, budget=budget, repeats=1)
    run_id = analyze(service, TEXT[:200], how)
    rows = statistics_table(service.database, run_id, "statistics").to_pylist()
    layers = [row["layer"] for row in rows if row["statistic"] == "distant_pairs_kept"]
    assert layers == [1, None]
    of_run = next(row for row in rows if row["statistic"] == "distant_pairs_kept" and row["layer"] is None)
    assert of_run["value"] == pytest.approx(run_summary(service.database, run_id)["distant_pairs_kept"])
