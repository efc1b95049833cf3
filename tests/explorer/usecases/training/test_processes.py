"""Trainings started from the page: watched, stopped, continued, used."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from focus_explorer.cli.main import main
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.runs import run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.training.processes import LIVE, Trainings
from focus_explorer.usecases.training.request import TrainRequest, plan_training
from focus_explorer.usecases.users import acting_as
from tests.explorer.conftest import TEXT
from tests.explorer.usecases.training.curves import curve
from tests.pace import slowed_down

pytestmark = pytest.mark.slow  # many short trainings; they run in make test


STEPS = 120  # slowed down they last longer than a busy machine takes to see that one was made


@pytest.fixture
def pace(tmp_path, monkeypatch):
    """A file while which is there, trainings are slow enough to be watched and stopped."""
    start, path = slowed_down(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([start, *sys.path]))
    path.touch()
    return path


@pytest.fixture
def trainings(tmp_path, pace):
    made = Trainings(Service(tmp_path / "runs.duckdb"))
    yield made
    job = made._job
    if job is not None and job.process.poll() is None:
        job.process.kill()
        job.process.wait()


def request(model_folder, steps):
    return TrainRequest(
        text=(),
        out="",
        name="mine",
        model=model_folder,
        groups=3,
        top_k=1,
        window=8,
        steps=steps,
        seq_len=64,
        checkpoint_every=2,
    )


def until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.5)  # asking opens the database, which takes as long as some steps
    pytest.fail("it did not happen in time")


@pytest.mark.long
def test_start_watch_stop_continue_and_use(trainings, model_folder, text_file, pace):
    """Stopped once and killed once, which is shown as interrupted; it continues from both."""
    with acting_as("ada"):
        out = trainings.start(request(model_folder, STEPS), [str(text_file)])
    assert trainings.payload({})["job"]["state"] == "starting"
    with acting_as("ben"), pytest.raises(InputError, match="mine belongs to ada"):
        trainings.stop()
    with pytest.raises(InputError, match="mine is still running"):
        trainings.start(request(model_folder, 10), [str(text_file)])
    until(lambda: any(row["step"] > 3 for row in trainings.rows()))
    [row] = trainings.rows()
    key = row["training_id"]
    assert (row["status"], row["out"], row["name"], row["owner"]) == ("running", out, "mine", "ada")
    with acting_as("ben"), pytest.raises(InputError, match="mine belongs to ada"):
        trainings.stop(key)
    first = trainings.payload({key: {}})
    assert first["job"] is None
    last = first["curves"][key]["focus"]["last"]
    until(lambda: trainings.rows()[0]["step"] > last)
    more = trainings.payload({key: {"focus": last}})["curves"][key]["focus"]
    assert more["step"][0] == last + 1
    json.dumps(more, allow_nan=False)

    with acting_as("ada"):
        trainings.stop(key)
    until(lambda: trainings.rows()[0]["status"] not in LIVE)
    [row] = trainings.rows()
    assert (row["status"], row["resumable"], row["usable"]) == ("stopped", True, False)
    with pytest.raises(InputError, match="not running"):
        Trainings(trainings.service).stop(key)
    with pytest.raises(InputError, match="no finished file"):
        trainings.use(key)
    with acting_as("ben"), pytest.raises(InputError, match="mine belongs to ada"):
        trainings.resume(key)
    text_file.unlink()  # the page's training has its own copy

    assert trainings.resume(key) == out  # who owns the machine may; it stays whose it was
    until(lambda: trainings.rows()[0]["status"] == "running" and trainings.rows()[0]["step"] > row["step"])
    trainings._job.process.kill()
    until(lambda: trainings.rows()[0]["status"] == "interrupted")
    stored = [step for step, _ in curve(text_file.parent, key)]
    assert stored == list(range(1, stored[-1] + 1))
    assert stored[-1] > row["step"]

    pace.unlink()
    assert trainings.resume(key) == out
    until(lambda: trainings.rows()[0]["status"] == "done")
    [row] = trainings.rows()
    assert (row["step"], row["training_id"], row["usable"], row["owner"]) == (STEPS, key, True, "ada")
    steps = [step for step, _ in curve(text_file.parent, key)]
    assert all(before < after for before, after in pairwise(steps))  # nothing twice; what was not yet stored is lost
    assert (steps[0], steps[-1]) == (1, STEPS)
    used = trainings.use(key)
    run = analyze(trainings.service, TEXT, AnalyzeRequest(model=used["model"], centroids=used["sha256"], repeats=1))
    assert run_summary(trainings.service.database, run)["config"]["num_groups"] == 3


@pytest.mark.parametrize("domains", [False, True])
def test_texts_and_held_out_texts_of_a_training(domains, trainings, model_folder, tmp_path, monkeypatch):
    """As domains each file has a name, which its own name gives, however it is spelled and wherever it lay."""
    spawned = []
    monkeypatch.setattr(trainings, "_spawn", lambda words, *others: spawned.append(words))
    files = {}
    for folder in ("train", "held-out"):
        (tmp_path / folder).mkdir()
        files[folder] = [tmp_path / folder / name for name in ("manual.txt", "old = novels.txt")]
        for file in files[folder]:
            file.write_text(f"{folder} {file.name}")
    wanted = replace(request(model_folder, 5), val_every=2, patience=1)
    texts, held_out = ([str(file) for file in files[folder]] for folder in ("train", "held-out"))
    trainings.start(wanted, texts, held_out, domains=domains)
    [words] = spawned
    seen = []
    monkeypatch.setattr("focus_explorer.usecases.training.train.train", lambda made, *_, **__: seen.append(made))
    assert main([*words, "--no-db"]) == 0
    [made] = seen
    assert (made.val_every, made.patience) == (2, 1)
    plan = plan_training(made)
    for sources, folder in ((plan.domains, "train"), (plan.held_out, "held-out")):
        names = ["manual", "old-novels"] if domains else [""]
        assert [source.name for source in sources] == names
        kept = [Path(path).read_text() for source in sources for path in source.sources]
        assert kept == [f"{folder} manual.txt", f"{folder} old = novels.txt"]


def test_bad_requests_start_nothing(trainings, model_folder, text_file, tmp_path):
    with pytest.raises(InputError, match="steps is 0"):
        trainings.start(request(model_folder, 0), [str(text_file)])
    with pytest.raises(InputError, match="without held-out text"):
        trainings.start(replace(request(model_folder, 5), patience=2), [str(text_file)])
    binary = tmp_path / "b.txt"
    binary.write_bytes(b"\x7fELF\0\0")
    with pytest.raises(InputError, match="binary"):
        trainings.start(request(model_folder, 5), [str(binary)])
    with pytest.raises(NotFoundError, match="no training 'x'"):
        trainings.resume("x")
    with pytest.raises(NotFoundError, match="no training is running"):
        trainings.stop()
    assert trainings._job is None
    assert not (tmp_path / "trainings").exists()
