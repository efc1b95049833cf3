"""The job runner: states, progress, cancellation, errors and limits, without a model."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from focus_explorer.errors import Cancelled, InputError, MemoryShortError
from focus_explorer.usecases import jobs
from focus_explorer.usecases.jobs import (
    CGROUP_LIMIT,
    DEFECT,
    Job,
    JobLimits,
    JobRunner,
    done_here,
    live_jobs,
    memory_watched,
    resident_bytes,
    set_job_limits,
    usual_memory_limit,
)
from focus_explorer.usecases.models import LoadedModel, ModelStore
from tests.explorer.usecases.conftest import changes


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
    next(state for state in (one.state for one in changes(job)) if state == "running")
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
    next(one for one in changes(first) if one.state == "running")
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


@pytest.fixture(autouse=True)
def no_limits():
    yield
    set_job_limits(JobLimits())


def endless(job):
    while True:
        job.step("Working", 0.1)
        time.sleep(0.005)


def test_a_job_that_takes_too_long_fails_with_what_to_do():
    set_job_limits(JobLimits(seconds=0.1))
    job = JobRunner().start("key", endless, kind="grid")
    assert job.wait(5)
    assert job.state == "failed"
    assert job.message == (
        "this took longer than the 1 s that one job may work on this page; choose a shorter text or fewer settings; "
        "what was stored on the way is kept"
    )


def test_work_that_asks_whether_to_stop_is_ended_too():
    set_job_limits(JobLimits(seconds=0.1))

    def work(job):
        while not job.stop_requested():
            time.sleep(0.005)
        raise Cancelled("stopped")

    with pytest.raises(InputError, match="took longer than"):
        done_here("analysis", work)
    assert not live_jobs()


def test_what_was_stored_before_the_limit_is_a_result():
    set_job_limits(JobLimits(seconds=0.05))

    def work(job):
        while not job.stop_requested():
            time.sleep(0.005)
        return "a run"  # as an analysis whose repeats are cut short

    assert done_here("analysis", work) == "a run"


def test_the_wait_for_a_model_is_not_counted():
    set_job_limits(JobLimits(seconds=0.3))
    models = ModelStore(lambda name, placement, progress: LoadedModel(name, _model(), None, ""))
    held, free = threading.Event(), threading.Event()

    def holder():
        with models.lease("m"):
            held.set()
            free.wait(10)

    thread = threading.Thread(target=holder)
    thread.start()
    assert held.wait(10)

    def work(job):
        with models.lease("m", progress=job.step):
            job.step("Working", 0.5)
            return job.seconds

    job = JobRunner().start("key", work, kind="analysis")
    time.sleep(0.8)
    assert job.live
    free.set()
    thread.join()
    assert job.wait(10)
    assert (job.state, job.message) == ("done", "")


def _model():
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(2, 2)

        def get_input_embeddings(self):
            return self.table

    return Model()


def test_the_meter_counts_a_lease_once_and_may_refuse():
    spent, refused = [], []

    class Meter:
        def admit(self):
            if refused:
                raise InputError("no more")

        def spend(self, seconds):
            spent.append(seconds)

    models = ModelStore(lambda name, placement, progress: LoadedModel(name, _model(), None, ""))
    models.meter = Meter()
    with models.lease("m"), models.lease("m"):
        time.sleep(0.05)
    assert len(spent) == 1
    assert spent[0] >= 0.05
    refused.append(True)
    with pytest.raises(InputError, match="no more"), models.lease("m"):
        pass


@pytest.mark.slow
def test_the_job_that_takes_too_much_memory_is_ended_and_its_memory_freed(monkeypatch):
    monkeypatch.setattr(jobs, "LOOK_SECONDS", 0.02)
    before = resident_bytes()
    set_job_limits(JobLimits(memory_bytes=before + 300 * 2**20))
    peak = []

    def greedy(job):
        held = []
        for _ in range(100):
            held.append(bytearray(b"x" * (20 * 2**20)))
            peak.append(len(held))
            job.step("Growing", 0.5)
            time.sleep(0.01)

    with memory_watched():
        patient = JobRunner().start("patient", lambda job: time.sleep(0.3), kind="export")
        time.sleep(0.05)
        with pytest.raises(MemoryShortError, match=r"took more than the .* GiB of memory that one job may take"):
            done_here("analysis", greedy)
        assert patient.wait(5)
        time.sleep(0.2)
    assert patient.state == "done"  # begun before: not what grew
    assert peak[-1] < 40
    assert resident_bytes() < before + 100 * 2**20


def test_the_usual_limit_is_below_what_the_machine_or_container_has(monkeypatch, tmp_path):
    assert CGROUP_LIMIT.name == "memory.max"
    file = tmp_path / "memory.max"
    monkeypatch.setattr("focus_explorer.usecases.jobs.CGROUP_LIMIT", file)
    whole = usual_memory_limit()
    file.write_text(f"{2**30}\n")
    assert usual_memory_limit() == int(0.9 * 2**30)
    file.write_text("max\n")
    assert usual_memory_limit() == whole
