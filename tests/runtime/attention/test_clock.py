"""Stages are added up; on a GPU by events, which are waited for once, when the seconds are read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from focus_runtime.attention.clock import StageClock

GPUS = [torch.device("cuda", 0), torch.device("cuda", 1)]


@pytest.fixture
def streams(monkeypatch):
    """Clocks of two simulated GPUs in milliseconds, by index; every wait for a GPU is noted under "waits"."""
    state = {0: 0.0, 1: 0.0, "waits": 0}

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing
            self.at = None

        def record(self, stream):
            self.at = state[stream.index]

        def synchronize(self):
            state["waits"] += 1

        def elapsed_time(self, end):
            return end.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(index=device.index))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("a stage waited for the whole GPU"))
    return state


def test_stages_of_gpus_wait_only_when_they_are_read(streams):
    clock = StageClock(devices=GPUS)
    for index, milliseconds in ((0, 3.0), (1, 4.0), (0, 5.0)):
        with clock("attention"):
            streams[index] += milliseconds
    assert streams["waits"] == 0
    assert clock.seconds == pytest.approx({"attention": 0.012})
    assert streams["waits"] == 6
    assert clock.seconds == pytest.approx({"attention": 0.012})
    assert streams["waits"] == 6


def test_a_stage_that_fails_is_counted_and_a_switched_off_clock_counts_nothing(streams):
    clock, off = StageClock(devices=GPUS[:1]), StageClock(enabled=False, devices=GPUS)

    def work():
        streams[0] += 2.0
        raise ValueError("broke")

    with pytest.raises(ValueError, match="broke"), clock("sort"), off("sort"):
        work()
    off.add("merge", 1.0)
    assert clock.seconds == pytest.approx({"sort": 0.002})
    assert off.seconds == {}
