"""StageClock: seconds per named stage. Torch is loaded only to wait for a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class StageClock:
    """Adds up wall time by stage name; on CUDA it waits for the device before and after each stage.

    Attributes:
        seconds: stage -> seconds so far.
    """

    def __init__(self, *, enabled: bool = True, devices: Sequence[torch.device] = ()) -> None:
        self.enabled = enabled
        self.seconds: dict[str, float] = {}
        self._gpus = [device for device in devices if device.type == "cuda"]

    def add(self, stage: str, seconds: float) -> None:
        """Count seconds measured elsewhere."""
        if not self.enabled:
            return
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time what runs inside."""
        if not self.enabled:
            yield
            return
        self._synchronise()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._synchronise()
            self.add(stage, time.perf_counter() - start)

    def _synchronise(self) -> None:
        for device in self._gpus:
            import torch

            torch.cuda.synchronize(device)


class PassClock(StageClock):
    """Stages of forward passes: "routing", "attention" (routing not included), and what attention consists of.

    Attributes:
        calls: attention calls so far.
    """

    def __init__(self, *, enabled: bool = True, devices: Sequence[torch.device] = ()) -> None:
        super().__init__(enabled=enabled, devices=devices)
        self.calls = 0

    @property
    def routing(self) -> float:
        """Seconds spent deciding groups."""
        return self.seconds.get("routing", 0.0)

    @property
    def attention(self) -> float:
        """Seconds spent in attention calls."""
        return self.seconds.get("attention", 0.0)
