"""One training written to every program that `--log-to` names. What fails there never ends the training."""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from focus_explorer.progress import bars_hidden
from focus_explorer.usecases.training.trackers.numbers import UNITS, evaluation_numbers, result_numbers, step_numbers
from focus_explorer.usecases.training.trackers.target import LogTarget
from focus_explorer.usecases.training.trackers.tensorboard import TensorBoardTracker
from focus_explorer.usecases.training.trackers.tracker import TrackedRun, Tracker
from focus_explorer.usecases.training.trackers.trackio import TrackioTracker
from focus_explorer.usecases.training.trackers.wandb import WandbTracker
from focus_runtime.errors import InputError, TrainingStopped, first_line
from focus_runtime.files import replacing

CLASSES: dict[str, Callable[[str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "trackio": TrackioTracker,
    "wandb": WandbTracker,
}
_NAME_LENGTH = 60


@dataclass(slots=True)
class _Log:
    """A tracker with what is known of its log.

    Attributes:
        opened: whether the program has been started.
        last: last step in it, which is not written again.
        remembered: whether `TrainingTrackers` keeps `last` for a resume, because the program cannot say it.
    """

    target: LogTarget
    tracker: Tracker
    opened: bool = False
    last: int = 0
    remembered: bool = False


class TrainingTrackers:
    """Context that logs one training; takes the same calls as `TrainingRecorder`.

    The programs are opened with the first step. Which log a resumed training continues stands in `state`, a small file
    that is there until the training is done.

    Args:
        targets: programs.
        name: of the training; its log has this name with the time of its start.
        settings: plain values, recorded once.
        state: file beside the checkpoint.
        resume: continue the log that `state` names, if it names one.
        warn: called once for each program that fails.
        phases: for a training in several parts, each part's name and the steps before it; its steps are counted on, and
            its numbers are named after it. Without it they are named train/NAME.
    """

    def __init__(
        self,
        targets: Sequence[LogTarget],
        name: str,
        settings: Mapping[str, Any],
        *,
        state: Path,
        resume: bool = False,
        warn: Callable[[str], None] = lambda message: None,
        phases: Mapping[str, int] | None = None,
    ) -> None:
        self._logs = [_Log(target, CLASSES[target.kind](target.place)) for target in targets]
        self._state, self._warn, self._phases = state, warn, phases
        kept = _read(state) if resume else {}
        self._last: dict[str, int] = kept.get("last", {})
        key = kept.get("key") or _new_key(name)
        self._run = TrackedRun(key=key, settings={**settings, "units": UNITS}, resumed=bool(kept))
        self._step = 0
        self._forgetful = False  # where the state cannot be written
        self._end: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """The name that the training has in every program."""
        return self._run.key

    def __enter__(self) -> Self:
        """Nothing is written before the first step."""
        return self

    def step(self, step: Any) -> None:
        """Log a `TrainStep`, where the log does not have it from before a resume."""
        group, before = ("train", 0) if self._phases is None else (step.phase, self._phases[step.phase])
        number, numbers = before + step.step, step_numbers(step, group)
        self._open(number)
        self._remember()  # a program may hold a step back until the next one comes

        def write(log: _Log) -> None:
            if number > log.last:
                log.tracker.write(number, numbers)
                log.last = number

        self._each(write)
        self._step = number

    def evaluation(self, evaluation: Any) -> None:
        """Log an `Evaluation`; a training never reports one twice."""
        self._open(evaluation.step + 1)
        self._each(lambda log: log.tracker.write(evaluation.step, evaluation_numbers(evaluation)))
        self._step = max(self._step, evaluation.step)

    def finish(
        self,
        status: str,
        message: str = "",
        *,
        centroids_sha256: str = "",
        validation: Mapping[str, Any] | None = None,
        stop_reason: str = "",
        weights_after: str = "",
    ) -> None:
        """Say how it ended: "done", "stopped" or "failed"; written when the block is left.

        Args:
            status: how it ended.
            message: more on it.
            centroids_sha256: of the file that was written.
            validation: held-out scores; every number in them is logged.
            stop_reason: why a training that is done took no more steps.
            weights_after: sha256 of the model's weights, where they were trained.
        """
        notes = {
            "status": status,
            "message": message,
            "centroids_sha256": centroids_sha256,
            "weights_sha256": weights_after,
            "stop_reason": stop_reason,
        }
        self._end = {"status": status, "notes": notes, "numbers": result_numbers(validation or {})}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the end and close what is open; keep the state of a training that can be continued."""
        if self._end is None:
            stopped = kind is not None and issubclass(kind, KeyboardInterrupt | TrainingStopped)
            self.finish("done" if kind is None else "stopped" if stopped else "failed", str(error or ""))
        assert self._end is not None
        end = self._end
        notes = {f"result/{name}": text for name, text in end["notes"].items() if text}

        def close(log: _Log) -> None:
            if log.opened:
                log.tracker.close(self._step, end["numbers"], notes, failed=end["status"] == "failed")

        with bars_hidden():
            self._each(close)
        if end["status"] == "done":
            with suppress(OSError):  # it could not be written either
                self._state.unlink()
        else:
            self._remember()

    def _open(self, step: int) -> None:
        """Open what is not open yet, for `step` and what follows."""
        if all(log.opened for log in self._logs):
            return

        def start(log: _Log) -> None:
            last = log.tracker.open(self._run, step)
            log.remembered = last is None
            log.last = self._last.get(log.target.kind, 0) if last is None else last
            log.opened = True

        with bars_hidden():
            self._each(start)
        self._keep_state()

    def _remember(self) -> None:
        """Keep the last step of programs that cannot say what they hold."""
        kinds = [log.target.kind for log in self._logs if log.remembered]
        if kinds:
            self._last |= dict.fromkeys(kinds, self._step)
            self._keep_state()

    def _keep_state(self) -> None:
        if not self._logs or self._forgetful:
            return
        try:
            with replacing(self._state) as part:
                part.write_text(json.dumps({"key": self.key, "last": self._last}), encoding="utf-8")
        except InputError as error:
            self._forgetful = True
            self._warn(f"a training that continues this one will have a log of its own ({error.problem})")

    def _each(self, act: Callable[[_Log], None]) -> None:
        """Do something with every log; one that fails is left alone from then on."""
        for log in list(self._logs):
            try:
                with redirect_stdout(sys.stderr):  # standard output is the result's
                    act(log)
            except Exception as error:  # a client raises whatever its network and its files raise
                self._drop([log], error)

    def _drop(self, logs: Sequence[_Log], error: Exception) -> None:
        names = ", ".join(log.target.name for log in logs)
        self._logs = [log for log in self._logs if log not in logs]
        with bars_hidden():
            self._warn(f"{names} takes no more of this training, which continues ({first_line(error)})")


def _new_key(name: str) -> str:
    """NAME-DATE-TIME-RANDOM of letters that folders and addresses may have."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:_NAME_LENGTH] or "training"
    return f"{plain}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _read(state: Path) -> dict[str, Any]:
    """What the state file says; empty where it is missing or damaged."""
    try:
        kept = json.loads(state.read_text(encoding="utf-8"))
        return {"key": str(kept["key"]), "last": {str(kind): int(step) for kind, step in kept["last"].items()}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
