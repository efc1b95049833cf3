"""What one job may take: time and memory, told in one message, and nothing of it is left."""

from __future__ import annotations

import threading
import time

import pytest

from focus_explorer.errors import Cancelled, InputError, MemoryShortError
from focus_explorer.usecases import memory_watch
from focus_explorer.usecases.job_limits import CGROUP_LIMIT, JobLimits, set_job_limits, usual_memory_limit
from focus_explorer.usecases.jobs import Job, JobRunner, done_here, live_jobs, waiting_for_turn
from focus_explorer.usecases.memory_watch import memory_watched, resident_bytes
from focus_explorer.usecases.models import LoadedModel, ModelStore


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


def test_waiting_for_a_turn_is_no_work():
    set_job_limits(JobLimits(seconds=0.2))
    lock = threading.Lock()
    lock.acquire()

    def work(job):
        assert job.working
        with waiting_for_turn():
            assert not job.working
            assert lock.acquire(timeout=5)
        job.step("At last", 0.5)
        return job.seconds

    job = JobRunner().start("key", work, kind="grid")
    time.sleep(0.4)
    lock.release()
    assert job.wait(5)
    assert job.state == "done"
    assert job.result < 0.2


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
    monkeypatch.setattr(memory_watch, "LOOK_SECONDS", 0.02)
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


def test_memory_of_nobody_ends_nothing(monkeypatch):
    monkeypatch.setattr(memory_watch, "LOOK_SECONDS", 0.01)
    set_job_limits(JobLimits(memory_bytes=1))
    with memory_watched():
        time.sleep(0.1)
    assert Job("grid").state == "waiting"


def test_the_usual_limit_is_below_what_the_machine_or_container_has(monkeypatch, tmp_path):
    assert CGROUP_LIMIT.name == "memory.max"
    file = tmp_path / "memory.max"
    monkeypatch.setattr("focus_explorer.usecases.job_limits.CGROUP_LIMIT", file)
    whole = usual_memory_limit()
    file.write_text(f"{2**30}\n")
    assert usual_memory_limit() == int(0.9 * 2**30)
    file.write_text("max\n")
    assert usual_memory_limit() == whole
