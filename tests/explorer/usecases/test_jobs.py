"""The job runner: states, progress, cancellation, errors and limits, without a model."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from focus_explorer.errors import InputError
from focus_explorer.usecases import jobs
from focus_explorer.usecases.jobs import DEFECT, Job, JobRunner


@pytest.fixture
def gate():
    """Work waits for it; opened at the end, so that no thread is left behind."""
    event = threading.Event()
    yield event
    event.set()


def held(gate):
    def work(job):
        job.step("Holding", 0.5)
        assert gate.wait(10)
        job.step("Released", 0.9)
        return "result"

    return work


def test_a_job_runs_to_its_result(gate):
    runner = JobRunner()
    job = runner.start("key", held(gate), kind="grid", run_id="a")
    next(state for state in (one.state for one in job.changes()) if state == "running")
    assert job.status() == {
        "kind": "grid",
        "run_id": "a",
        "state": "running",
        "stage": "Holding",
        "fraction": 0.5,
        "message": "",
        "seconds_left": None,
    }
    assert runner.start("key", held(gate), kind="grid") is job  # it is live: nothing is started
    gate.set()
    assert job.wait(5)
    assert (job.state, job.fraction, job.result, job.error) == ("done", 1.0, "result", None)
    assert runner.get("key") is runner.newest() is job
    assert runner.get("other") is None


def test_the_time_left_of_steady_work_follows_from_what_is_done(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    job = Job("grid", steady=True)
    seen = []

    def at(seconds, stage, fraction):
        clock[0] = 100.0 + seconds
        job.step(stage, fraction)
        seen.append(job.seconds_left)

    at(0, "Loading the model", 0.0)
    at(50, "Setting 1", 0.0)  # what came before is not counted
    at(60, "Setting 2", 0.25)
    assert seen == [None, None, pytest.approx(30)]
    clock[0] += 4  # meanwhile
    assert job.seconds_left == pytest.approx(26)
    clock[0] += 400  # it takes longer than the first
    assert job.seconds_left == 0
    unsteady = Job("lengths")
    unsteady.step("One", 0.0)
    unsteady.step("Two", 0.5)
    assert unsteady.seconds_left is None


def test_a_stop_ends_a_job_at_its_next_step(gate):
    runner = JobRunner()
    job = runner.start("key", held(gate), kind="grid")
    runner.stop("key")
    runner.stop("other")
    assert job.status()["state"] == "stopping"
    gate.set()
    assert job.wait(5)
    assert (job.state, job.message, job.result) == ("stopped", "", None)


def test_an_input_error_is_the_message_and_a_defect_is_in_the_log(caplog):
    def refused(job):
        raise InputError("the text is empty")

    def broken(job):
        raise RuntimeError("a defect")

    runner = JobRunner()
    first, second = (runner.start(name, work, kind="x") for name, work in (("a", refused), ("b", broken)))
    assert first.wait(5)
    assert second.wait(5)
    assert (first.state, first.message) == ("failed", "the text is empty")
    assert (second.state, second.message) == ("failed", DEFECT)
    assert isinstance(second.error, RuntimeError)
    assert "a defect" in caplog.text


def test_a_lack_of_memory_outside_the_model_is_no_defect(capsys):
    def full(job):
        raise MemoryError

    job = JobRunner().start("a", full, kind="x")
    assert job.wait(5)
    assert (job.state, job.message) == ("failed", "the memory ran out; close other programs, or give a shorter text")


def test_changes_end_with_the_job(gate):
    job = JobRunner().start("key", held(gate), kind="x")
    seen = []
    for one in job.changes():
        seen.append(one.state)
        gate.set()
    assert seen[-1] == "done"


def test_a_limit_refuses_further_jobs_also_of_the_same_key(gate):
    runner = JobRunner(most_live=1, busy=("another is under way", "wait"))
    job = runner.start("a", held(gate), kind="x")
    for key in ("a", "b"):
        with pytest.raises(InputError, match="another is under way"):
            runner.start(key, held(gate), kind="x")
    gate.set()
    assert job.wait(5)
    assert runner.start("b", held(gate), kind="x").wait(5)


def test_one_at_a_time_keeps_the_others_waiting(gate):
    runner = JobRunner(one_at_a_time=True)
    first = runner.start("a", held(gate), kind="x")
    next(one for one in first.changes() if one.state == "running")
    second = runner.start("b", held(gate), kind="x")
    assert not second.wait(0.1)
    assert second.state == "waiting"
    gate.set()
    assert first.wait(5)
    assert second.wait(5)
    assert second.state == "done"


def test_a_result_is_reused_on_request_and_a_failure_is_not():
    runner, calls = JobRunner(), []

    def work(job):
        calls.append(job)
        if len(calls) == 1:
            raise InputError("not yet")
        return len(calls)

    for _ in range(3):
        job = runner.start("key", work, kind="x", reuse_done=True)
        assert job.wait(5)
    assert job.result == len(calls) == 2
    assert runner.start("key", work, kind="x").wait(5)
    assert len(calls) == 3


def test_the_jobs_used_longest_ago_are_forgotten():
    runner = JobRunner(kept=2)
    for key in "abcd":
        assert runner.start(key, lambda job: None, kind="x").wait(5)
    assert [key for key in "abcd" if runner.get(key) is not None] == ["b", "c", "d"]  # two, and the newest
