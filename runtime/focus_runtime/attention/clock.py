"""StageClock: seconds per named stage. Torch is loaded when something is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Stage = Callable[[str], AbstractContextManager[None]]
NOTHING = nullcontext()  # may be entered any number of times


def unmeasured(name: str) -> AbstractContextManager[None]:
    """A `Stage` that times nothing."""
    return NOTHING


class StageClock:
    """Adds up time by stage name: wall time, and for GPUs the time between two events on their streams.

    A GPU is waited for only when `seconds` is read, so that many stages take no longer than few.
    """

    def __init__(self, *, enabled: bool = True, devices: Sequence[torch.device] = ()) -> None:
        self.enabled = enabled
        self._seconds: dict[str, float] = {}
        self._gpus = [device for device in devices if device.type == "cuda"]
        self._running: list[tuple[str, list[Any], list[Any]]] = []  # stage, events at its start and end, one a GPU

    @property
    def seconds(self) -> dict[str, float]:
        """Stage -> seconds so far."""
        for stage, starts, stops in self._running:
            spent = []
            for start, stop in zip(starts, stops, strict=True):
                stop.synchronize()
                spent.append(start.elapsed_time(stop) / 1000)
            self.add(stage, max(spent))  # a stage runs on one of them
        self._running.clear()
        return self._seconds

    def add(self, stage: str, seconds: float) -> None:
        """Count seconds measured elsewhere."""
        if self.enabled:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    def __call__(self, stage: str) -> AbstractContextManager[None]:
        """Time what runs inside."""
        if not self.enabled:
            return NOTHING
        return self._timed(stage)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        starts, start = self._events(), time.perf_counter()
        try:
            yield
        finally:
            if self._gpus:
                self._running.append((stage, starts, self._events()))
            else:
                self.add(stage, time.perf_counter() - start)

    def _events(self) -> list[Any]:
        """An event on every GPU's current stream, after what has been launched there."""
        import torch

        events: list[Any] = []
        for device in self._gpus:
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record(torch.cuda.current_stream(device))
        return events


class PassClock(StageClock):
    """Stages of forward passes: "routing", "attention" (routing not included), and what attention consists of."""

    calls = 0

    @property
    def routing(self) -> float:
        """Seconds spent deciding groups."""
        return self.seconds.get("routing", 0.0)

    @property
    def attention(self) -> float:
        """Seconds spent in attention calls."""
        return self.seconds.get("attention", 0.0)
