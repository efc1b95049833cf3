"""Analyses on a tiny model and a real database: bad requests, cancelling, notes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import ConfigError, InputError, ModelError, NotFoundError, StoreBusyError
from focus_explorer.usecases.analyze import AnalyzeRequest, FirstRun, analyze, check_first_run
from focus_explorer.usecases.run_model import lease_run_model, run_centroids
from focus_explorer.usecases.runs import list_runs, run_config, run_summary
from focus_explorer.usecases.service import Service
from focus_runtime.errors import Cancelled, DeviceError
from focus_runtime.run import text as engine
from tests.explorer.conftest import TEXT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("changes", "error", "part"),
    [
        ({"top_k": 9}, ConfigError, "top_k is 9"),
        ({"top_k": 0}, ConfigError, "top_k is 0"),
        ({"window": -1}, ConfigError, "window is -1"),
        ({"num_sinks": -2}, ConfigError, "num_sinks is -2"),
        ({"assignment": "magic"}, ConfigError, "assignment is 'magic'"),
        ({"max_tokens": 1}, ConfigError, "max_tokens is 1"),
        ({"model": "no-such-model-anywhere"}, ModelError, "no-such-model-anywhere"),
        ({"centroids": "missing.safetensors"}, InputError, "missing.safetensors"),
        ({"centroids": "unheard-of"}, NotFoundError, "unheard-of"),
        ({"centroids": "default"}, InputError, "width 576"),
        ({"device": "cuda:77"}, DeviceError, "device cuda:77 is not available"),
        ({"device": "abacus"}, DeviceError, "device 'abacus' is unknown"),
        ({"device": "cpu", "dtype": "float16"}, DeviceError, "does not compute in float16"),
        ({"backend": "magic"}, ConfigError, "backend is 'magic'; expected one of auto"),
        ({"centroids": "default", "seed": 3}, ConfigError, "for random centroids"),
        ({"centroids": "default", "num_groups": 5}, ConfigError, "for random centroids"),
        ({"num_groups": 64}, ConfigError, "num_groups is 64"),
        ({"routing_dim": 0}, ConfigError, "routing_dim is 0"),
    ],
)
def test_bad_requests_are_named_and_keep_nothing(service, model_folder, run_id, changes, error, part):
    before = len(list_runs(service.database))
    settings = {"model": model_folder, "centroids": "random", **changes}
    with pytest.raises(error, match=part):
        analyze(service, TEXT, AnalyzeRequest(**settings))
    assert len(list_runs(service.database)) == before


def test_cancelling_keeps_nothing(service, model_folder, run_id, monkeypatch):
    before = len(list_runs(service.database))
    with monkeypatch.context() as patch:
        patch.setattr("focus_explorer.usecases.analyze.stop_requested", lambda: True)
        with pytest.raises(Cancelled):
            analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids="random"))
    assert len(list_runs(service.database)) == before
    assert analyze(service, TEXT, AnalyzeRequest(model=model_folder, centroids="random", repeats=1))


def timed(service, run_id):
    """Repeats of the timings that are stored."""
    with service.database.read() as connection:
        query = "SELECT DISTINCT repeat FROM timings WHERE run_id = ? ORDER BY repeat"
        return [repeat for (repeat,) in connection.execute(query, [run_id]).fetchall()]


def test_a_stop_while_timings_are_repeated_keeps_the_run(monkeypatch, service, model_folder):
    monkeypatch.setattr(engine, "LONG_TIMING_SECONDS", 0.0)
    seen = []
    request = AnalyzeRequest(model=model_folder, centroids="random", repeats=50)
    monkeypatch.setattr("focus_explorer.usecases.analyze.stop_requested", lambda: len(seen) == 2)
    run = analyze(service, TEXT, request, stored=seen.append)
    assert seen == [run, run]
    assert timed(service, run) == [0, 1]


HOLD = """
import duckdb, sys, time
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


def test_a_finished_analysis_waits_for_a_database_that_another_program_keeps(tmp_path, model_folder):
    own = Service(tmp_path / "runs.duckdb")
    with own.database.write():
        pass
    own.database.wait = 0.2
    stages, holders = [], []

    def progress(stage, fraction):
        stages.append(stage)
        if stage == "Counting pairs":
            command = [sys.executable, "-c", HOLD, str(own.database.path), "1.5"]
            holders.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            assert holders[0].stdout.readline() == "held\n"

    request = AnalyzeRequest(model=model_folder, centroids="random", repeats=1, max_tokens=60)
    run = analyze(own, TEXT, request, progress=progress)
    holders[0].wait()
    assert [row["run_id"] for row in list_runs(own.database)] == [run]
    assert any("another program writes" in stage for stage in stages)


def test_waiting_for_the_database_can_be_stopped(tmp_path, model_folder, monkeypatch):
    own = Service(tmp_path / "runs.duckdb")

    def busy(*_, **__):
        raise StoreBusyError("the database is in use")

    def progress(stage, fraction):
        if "another program" in stage:
            raise Cancelled("stopped")

    monkeypatch.setattr("focus_runtime.store.runs.write_run", busy)
    request = AnalyzeRequest(model=model_folder, centroids="random", repeats=1, max_tokens=60)
    with pytest.raises(Cancelled):
        analyze(own, TEXT, request, progress=progress)
    monkeypatch.setattr("focus_explorer.usecases.analyze.PATIENCE_SECONDS", 0.0)
    with pytest.raises(StoreBusyError):
        analyze(own, TEXT, request, progress=lambda stage, fraction: time.sleep(0.01))


@pytest.mark.parametrize(("dtype", "backend"), [("float32", "masked"), ("bfloat16", "decomposed")])
def test_precision_and_backend_that_were_chosen_ran(service, model_folder, dtype, backend):
    request = AnalyzeRequest(
        model=model_folder, centroids="random", top_k=1, window=8, repeats=1, device="cpu", dtype=dtype, backend=backend
    )
    summary = run_summary(service.database, analyze(service, TEXT, request))
    assert (summary["device"], summary["dtype"], summary["backend"]) == ("cpu", dtype, backend)


def test_random_centroids_are_drawn_as_requested(service, model_folder):
    def groups(**drawn):
        run = analyze(
            service, TEXT, AnalyzeRequest(model=model_folder, centroids="random", window=8, repeats=1, top_k=1, **drawn)
        )
        row = fetch_run(service.database, run)
        with service.database.read() as connection:
            query = "SELECT layer, position, membership FROM assignments WHERE run_id = ? ORDER BY ALL"
            return row, connection.execute(query, [run]).fetchall()

    row, first = groups(num_groups=6, routing_dim=8, seed=5)
    config = run_config(row)
    assert (config.num_groups, config.routing_dim, row["seed"]) == (6, 8, 5)
    assert groups(num_groups=6, routing_dim=8, seed=5)[1] == first
    assert groups(num_groups=6, routing_dim=8, seed=6)[1] != first
    with lease_run_model(service, row) as loaded:
        again = run_centroids(service, row, loaded)
        assert again.sha256 == row["centroids_sha256"]


@pytest.fixture
def empty(tmp_path):
    return Service(tmp_path / "runs.duckdb")


def test_visitors_share_one_run_and_nothing_starts_when_there_is_one(empty, model_folder):
    request = AnalyzeRequest(model=model_folder, centroids="random", max_tokens=64, repeats=1)
    job = empty.part(FirstRun).job(request)
    assert empty.part(FirstRun).job(request) is job
    fractions = [0.0]
    while not job.wait(0.005):
        fractions.append(job.fraction)
    assert job.state == "done", job.message
    assert fractions == sorted(fractions)
    assert [run["run_id"] for run in list_runs(empty.database)] == [job.result]
    assert empty.part(FirstRun).job(request) is None


def test_a_failure_is_kept_until_a_retry(empty, model_folder, tmp_path):
    broken = AnalyzeRequest(model=str(tmp_path), centroids="random", max_tokens=64, repeats=1)
    failed = empty.part(FirstRun).job(broken)
    assert failed.wait(60)
    assert failed.state == "failed"
    assert "cannot be loaded" in failed.message
    assert empty.part(FirstRun).job(broken) is failed
    again = empty.part(FirstRun).job(AnalyzeRequest(model=model_folder, centroids="random", max_tokens=64), retry=True)
    assert again.wait(120)
    assert again.state == "done", again.message


@pytest.mark.parametrize("names", [{"model": "who-knows"}, {"centroids": "nowhere.safetensors"}])
def test_names_of_nothing_are_refused_before_the_page_is_served(empty, names):
    with pytest.raises(InputError, match=next(iter(names.values()))):
        check_first_run(empty, AnalyzeRequest(**names))
    check_first_run(empty, AnalyzeRequest())
