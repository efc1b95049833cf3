"""What a training's log is to the rest: opened at a step, written to, closed. One class for each program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedRun:
    """One training as its logs know it.

    Attributes:
        key: letters, digits, dots and dashes; the same in all logs, and again when the training is resumed.
        settings: plain values, recorded once.
        resumed: whether the log may exist already.
    """

    key: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    resumed: bool = False


class Tracker(Protocol):
    """A log of one training in one program, through the program's own client."""

    def open(self, run: TrackedRun, step: int) -> int | None:
        """Start or continue the log; what the log holds of `step` and later steps is replaced if that is possible.

        Args:
            run: the training.
            step: the first step that will be written.

        Returns:
            The last step that the log holds and keeps, 0 for none; None if the program cannot say.
        """

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add finite numbers by name; several calls may come for one step."""

    def close(self, step: int, numbers: Mapping[str, float], notes: Mapping[str, str], *, failed: bool) -> None:
        """Add the results and end the log.

        Args:
            step: the last one.
            numbers: results by name.
            notes: status and hashes by name.
            failed: whether the training ended with an error.
        """
