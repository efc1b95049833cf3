"""TensorBoard: a folder of event files for each training."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from focus_explorer.usecases.training.trackers.tracker import TrackedRun


class TensorBoardTracker:
    """Writes to FOLDER/KEY; a step is on the disk once it is written.

    Args:
        folder: the one that `tensorboard --logdir` is given.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(os.path.expanduser(folder))
        self._writer: Any = None

    def open(self, run: TrackedRun, step: int) -> int:
        """Start an event file; TensorBoard leaves out later steps of an earlier file. See `Tracker`."""
        from torch.utils.tensorboard import SummaryWriter

        folder = self._folder / run.key
        continued = run.resumed and folder.is_dir()
        self._writer = SummaryWriter(str(folder), purge_step=step if continued else None)
        if not continued:
            self._writer.add_text("settings", _code(run.settings), 0)
            self._writer.flush()
        return 0

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """One scalar for each number, on the disk when this returns."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, step: int, numbers: Mapping[str, float], notes: Mapping[str, str], *, failed: bool) -> None:
        """Results as scalars of the last step, notes as a text."""
        self.write(step, numbers)
        self._writer.add_text("result", _code(notes), step)
        self._writer.close()


def _code(values: Mapping[str, Any]) -> str:
    """JSON as Markdown that keeps its lines."""
    return "".join(f"    {line}\n" for line in json.dumps(values, indent=1).splitlines())
