"""trackio: a SQLite file of its own for each project, in its folder, or what its own settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from focus_explorer.usecases.training.trackers.tracker import TrackedRun


class TrackioTracker:
    """A run of trackio with the training's key for its name.

    Args:
        project: trackio's project.
    """

    def __init__(self, project: str) -> None:
        self._project = project
        self._run: Any = None

    def open(self, run: TrackedRun, step: int) -> int:
        """Start or continue the run; its steps stay. See `Tracker`."""
        import trackio

        self._run = trackio.init(
            project=self._project,
            name=run.key,
            config=dict(run.settings),
            resume="allow" if run.resumed else "never",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )
        following = getattr(self._run, "_next_step", 0)  # also of a run on a server; no public name says so
        return max(0, int(following) - 1)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Hand a row to trackio's thread, which writes twice a second."""
        self._run.log(dict(numbers), step=step)

    def close(self, step: int, numbers: Mapping[str, float], notes: Mapping[str, str], *, failed: bool) -> None:
        """Results and notes as the last row."""
        import trackio

        self._run.log({**numbers, **notes}, step=step)
        trackio.finish()
