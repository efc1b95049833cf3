"""Recorded curves are whole and exact, whoever else uses the database, and never in the training's way."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict

import duckdb
import pytest

from focus_runtime.errors import StoreError, TrainingStopped
from focus_runtime.fit.settings import TrainStep
from focus_runtime.fit.validation import Evaluation
from focus_runtime.store import training as module
from focus_runtime.store.database import Database
from focus_runtime.store.schema import MIGRATIONS
from focus_runtime.store.training import TrainingInfo, TrainingRecorder, is_alive, process_start

HOLD = "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(60)"


def info(out="/somewhere/a.safetensors", steps=10):
    return TrainingInfo(
        name="a",
        kind="centroids",
        model_id="tiny",
        model_fingerprint="f",
        steps=steps,
        seed=3,
        device="cpu",
        dtype="float32",
        out=out,
        config={"num_groups": 4},
        texts=["a.txt"],
    )


def step(number, loss=2.0, **changes):
    values = {
        "dominance": 0.3,
        "dominance_max": 0.4,
        "retained_pairs": 0.5,
        "learning_rate": 1e-3,
        "tokens_per_second": 100.0,
        "phase": "centroids",
    }
    return TrainStep(number, loss, **(values | changes))


def stored(database, columns="step, loss", where=""):
    with database.read() as connection:
        return connection.execute(f"SELECT {columns} FROM training_steps {where} ORDER BY mode, step").fetchall()


def row(database, columns="status, message"):
    with database.read() as connection:
        return connection.execute(f"SELECT {columns} FROM training_runs ORDER BY created_at").fetchall()


@pytest.fixture
def impatient(monkeypatch):
    """Flushes every few hundredths of a second, and no long waits."""
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(module, "FLUSH_WAIT", 0.05)
    monkeypatch.setattr(module, "LAST_WAIT", 0.3)


@pytest.fixture
def holder(database):
    """Starts a process that holds the database's lock until it is killed."""
    started = []

    def hold():
        started.append(subprocess.Popen([sys.executable, "-c", HOLD, str(database.path)], stdout=subprocess.PIPE))
        assert started[0].stdout.readline().strip() == b"held"
        return started[0]

    yield hold
    for process in started:
        process.kill()
        process.wait()


def test_what_is_reported_is_what_is_stored(database):
    with TrainingRecorder(database, info()) as recorder:
        recorder.step(step(1, 3.25))
        recorder.step(step(2, 3.125, dominance=math.nan, dominance_max=math.nan, retained_pairs=math.nan))
        recorder.evaluation(evaluation(2))
        recorder.finish("done", centroids_sha256="abc", validation={"full": 9.0}, stop_reason="no lower loss")
    columns = "mode, step, phase, loss, dominance, dominance_max, retained_pairs, learning_rate, tokens_per_second"
    assert stored(database, columns) == [
        ("focus", 1, "centroids", 3.25, 0.3, 0.4, 0.5, 1e-3, 100.0),
        ("focus", 2, "centroids", 3.125, None, None, None, 1e-3, 100.0),
    ]
    assert evaluations(database) == [(2, "code", 4.0, 40, 0.3, 0.5), (2, "novels", 3.0, 30, 0.3, 0.5)]
    columns = "training_id, status, stop_reason, centroids_sha256, validation, pid, host, steps, config, texts"
    [values] = row(database, columns)
    assert values[1:] == (
        "done",
        "no lower loss",
        "abc",
        '{"full": 9.0}',
        os.getpid(),
        socket.gethostname(),
        10,
        '{"num_groups": 4}',
        '["a.txt"]',
    )
    assert values[0] == recorder.training_id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (None, "done", ""),
        (KeyboardInterrupt(), "stopped", ""),
        (TrainingStopped(3, None), "stopped", "stopped after step 3"),
        (ValueError("it broke"), "failed", "it broke"),
    ],
)
def test_how_it_ended_is_kept(database, error, status, message):
    with suppress(KeyboardInterrupt, TrainingStopped, ValueError), TrainingRecorder(database, info()) as recorder:
        recorder.step(step(1))
        if error is not None:
            raise error
    assert row(database) == [(status, message)]


def test_without_a_step_no_row_stays(database):
    seen = []
    with suppress(ValueError), TrainingRecorder(database, info()):
        seen += row(database)
        raise ValueError("too short")
    assert seen == [("running", "")]
    assert row(database) == []


def test_steps_appear_while_it_runs(database, impatient):
    with TrainingRecorder(database, info()) as recorder:
        recorder.step(step(1))
        deadline = time.monotonic() + 20
        while not stored(database) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert stored(database) == [(1, 2.0)]
        assert row(database) == [("running", "")]


def test_a_resumed_training_replaces_what_it_does_again(database):
    with TrainingRecorder(database, info()) as first:
        for number in range(1, 6):
            first.step(step(number, 5.0))
        first.finish("stopped")
    with TrainingRecorder(database, info(), resume=True) as second:
        assert row(database)[0][0] == "stopped"
        for number in range(4, 7):
            second.step(step(number, 1.0))
    assert second.training_id == first.training_id
    assert stored(database) == [(1, 5.0), (2, 5.0), (3, 5.0), (4, 1.0), (5, 1.0), (6, 1.0)]
    assert row(database) == [("done", "")]
    times = [elapsed for (elapsed,) in stored(database, "elapsed")]
    assert times == sorted(times)


def evaluation(number, loss=3.0):
    return Evaluation(number, {"novels": loss, "code": loss + 1}, {"novels": 30, "code": 40}, 0.3, 0.5)


def evaluations(database):
    with database.read() as connection:
        return connection.execute(
            "SELECT step, domain, loss, scored, dominance, retained_pairs FROM training_evaluations ORDER BY ALL"
        ).fetchall()


def test_a_resumed_training_replaces_the_evaluations_it_does_again(database):
    with TrainingRecorder(database, info()) as first:
        for number in range(1, 6):
            first.step(step(number))
            first.evaluation(evaluation(number))
        first.finish("stopped")
    with TrainingRecorder(database, info(), resume=True) as second:
        second.evaluation(evaluation(3, 1.0))  # the one that the stop prevented
        second.step(step(4))
        second.evaluation(evaluation(4, 1.0))
    assert [(at, loss) for at, domain, loss, *_ in evaluations(database) if domain == "novels"] == [
        (1, 3.0),
        (2, 3.0),
        (3, 1.0),
        (4, 1.0),
    ]


def test_trainings_of_an_earlier_version_gain_the_columns(tmp_path):
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE schema_migrations (name VARCHAR PRIMARY KEY, applied_at TIMESTAMPTZ)")
        for name, statements in list(MIGRATIONS.items())[:9]:
            connection.execute(statements)
            connection.execute("INSERT INTO schema_migrations VALUES (?, now())", [name])
        connection.execute("INSERT INTO training_steps VALUES ('x', 'focus', 1, '', 2.0, 1, 1, 1, 1, 1, 1)")
    database = Database(path)
    assert stored(database, "loss, divergence") == [(2.0, None)]
    assert evaluations(database) == []
    with TrainingRecorder(database, info()) as recorder:
        recorder.step(step(1))
        recorder.evaluation(evaluation(1))
    assert len(evaluations(database)) == 2


@pytest.mark.slow
def test_a_held_lock_neither_stops_nor_slows_it_and_loses_nothing(database, impatient, monkeypatch, holder):
    monkeypatch.setattr(module, "LAST_WAIT", 20.0)
    warnings = []
    with TrainingRecorder(database, info(), warn=warnings.append) as recorder:
        process = holder()
        clock = time.monotonic()
        for number in range(1, 201):
            recorder.step(step(number))
        assert time.monotonic() - clock < 0.5
        deadline = time.monotonic() + 20
        while not warnings and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.kill()
    assert len(warnings) == 1
    assert "waits in memory" in warnings[0]
    assert str(process.pid) in warnings[0]
    assert [number for number, _ in stored(database)] == list(range(1, 201))
    assert row(database) == [("done", "")]


def test_a_full_disk_is_a_warning(database, impatient, monkeypatch):
    warnings = []
    with TrainingRecorder(database, info(), warn=warnings.append) as recorder:
        full = StoreError("the database cannot be used: the disk is full")
        with monkeypatch.context() as patch:
            patch.setattr(TrainingRecorder, "_write", lambda *_: (_ for _ in ()).throw(full))
            recorder.step(step(1))
            deadline = time.monotonic() + 20
            while not warnings and time.monotonic() < deadline:
                time.sleep(0.02)
        recorder.step(step(2))
    assert "the disk is full" in warnings[0]
    assert stored(database) == [(1, 2.0), (2, 2.0)]


@pytest.mark.slow
def test_two_trainings_of_two_processes_share_one_file(database):
    code = """
import json, sys
from dataclasses import make_dataclass
from focus_runtime.store.database import Database
from focus_runtime.store.training import TrainingInfo, TrainingRecorder
info, step = map(json.loads, sys.argv[2:])
made = make_dataclass("Step", step)
with TrainingRecorder(Database(sys.argv[1]), TrainingInfo(**info)) as recorder:
    for number in range(1, 301):
        recorder.step(made(**step | {"step": number}))
"""  # a TrainStep's own module would import torch
    records = [json.dumps(asdict(record)) for record in (info("/x/1"), step(1, 1.0))]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.Popen([sys.executable, "-c", code, str(database.path), *records], env=os.environ | paths)
    with TrainingRecorder(Database(database.path), info("/x/2")) as recorder:
        for number in range(1, 301):
            recorder.step(step(number, 2.0))
        while other.poll() is None and not any(run[0] == 1 for run in stored(database, "loss")):
            time.sleep(0.1)
    assert other.wait(timeout=120) == 0
    counts = stored(database, "loss, count(*), max(step)", "GROUP BY loss, mode, step")
    assert sum(count for _, count, _ in counts) == 600
    assert row(database) == [("done", ""), ("done", "")]


def test_a_dead_process_is_noticed():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_start(child.pid)
    here = socket.gethostname()
    assert is_alive(here, child.pid, started)
    assert not is_alive(here, child.pid, started + 1 if started else -1) or not started  # the number was given anew
    child.stdin.close()
    while process_start(child.pid) >= 0:  # ended, but not collected yet
        time.sleep(0.02)
    assert not is_alive(here, child.pid, started)
    child.wait()
    assert not is_alive(here, child.pid, started)
    assert is_alive("another-machine", child.pid, started)
