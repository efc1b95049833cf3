"""Trainings of child processes slowed down, so that they can be watched and stopped on a machine of any speed."""

from __future__ import annotations

from pathlib import Path

STEP_SECONDS = 0.2
# Python reads this module when it starts: a step lasts a while, at no cost, as long as the file `pace` is there.
_START = """
import os, time
from focus_runtime.store.training import TrainingRecorder
record = TrainingRecorder.step
def step(*given, **named):
    record(*given, **named)
    if os.path.exists({pace!r}):
        time.sleep({seconds})
TrainingRecorder.step = step
"""


def slowed_down(folder: Path) -> tuple[str, Path]:
    """What PYTHONPATH must begin with, and the file while which is there (it is not yet) trainings are slow.

    Args:
        folder: where both are put.
    """
    start, pace = folder / "start", folder / "pace"
    start.mkdir()
    (start / "sitecustomize.py").write_text(_START.format(pace=str(pace), seconds=STEP_SECONDS))
    return str(start), pace
