"""Weights & Biases: through its client, online where a key is known, otherwise offline into its folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from focus_explorer.usecases.training.trackers.tracker import TrackedRun

FLUSH = "x_transaction_log_flush_interval"  # an experimental setting, which other versions need not have
FLUSH_SECONDS = 1.0  # by itself wandb writes its file every 15 seconds, which a kill would lose


class WandbTracker:
    """A run of wandb with the training's key for its id and name.

    Args:
        project: wandb's project.
    """

    def __init__(self, project: str) -> None:
        self._project = project
        self._run: Any = None

    def open(self, run: TrackedRun, step: int) -> None:
        """Start or continue the run; offline wandb does not know what the run holds. See `Tracker`."""
        import wandb

        online = wandb.setup().settings.mode in ("online", "shared")
        settings: dict[str, Any] = {"console": "off"}
        if FLUSH in wandb.Settings.model_fields:
            settings[FLUSH] = FLUSH_SECONDS
        self._run = wandb.init(
            project=self._project,
            id=run.key,
            name=run.key,
            config=dict(run.settings),
            mode="offline" if online and not wandb.login(prompt=False) else None,
            resume="allow" if run.resumed else None,
            settings=wandb.Settings(**settings),
        )

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Hand numbers to wandb's own process; those of one step make one row."""
        self._run.log(dict(numbers), step=step)

    def close(self, step: int, numbers: Mapping[str, float], notes: Mapping[str, str], *, failed: bool) -> None:
        """Results and notes as the run's summary."""
        self._run.summary.update({**numbers, **notes})
        self._run.finish(exit_code=1 if failed else 0)
