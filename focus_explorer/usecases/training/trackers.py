"""`--log-to`: a training written to TensorBoard, trackio or Weights & Biases. What fails there never ends it."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from focus_explorer.progress import bars_hidden
from focus_explorer.usecases.training.texts import HELD_OUT
from focus_runtime.errors import InputError, TrainingStopped, first_line
from focus_runtime.files import cannot_write, check_writable_folder, replacing

NAMES = {"tensorboard": "TensorBoard", "trackio": "trackio", "wandb": "Weights & Biases"}  # the package is the key
PLACES = {"tensorboard": "runs", "trackio": "focus", "wandb": "focus"}  # unless one is given
FORMS = "tensorboard[:FOLDER], trackio[:PROJECT] or wandb[:PROJECT]"
UNITS = {  # the last part of a name -> its unit
    "loss": "nats per token",
    "perplexity": "exp of the loss",
    "divergence": "nats per token, KL from the predictions of full attention",
    "layer_error": "squared error over squared output, mean over layers",
    "dominance": "share of tokens in the largest group, 0 to 1, mean over layers",
    "dominance_max": "share of tokens in the largest group, 0 to 1, of the most lopsided layer",
    "retained_pairs": "share of causal pairs kept by the hard mask of later use, 0 to 1, mean over layers",
    "learning_rate": "AdamW's rate in this step",
    "tokens_per_second": "tokens per second, over all processes",
    "scored": "tokens",
}
_OF_STEP = tuple(name for name in UNITS if name != "scored")
_NAME_LENGTH = 60
FLUSH = "x_transaction_log_flush_interval"  # an experimental setting of wandb, which other versions need not have
FLUSH_SECONDS = 1.0  # by itself wandb writes its file every 15 seconds, which a kill would lose


@dataclass(frozen=True, slots=True)
class LogTarget:
    """One `--log-to`: a key of `NAMES`, and the folder of TensorBoard or the project of the others."""

    kind: str
    place: str


def parse_targets(words: Sequence[str]) -> list[LogTarget]:
    targets = []
    for word in words:
        kind, _, place = word.partition(":")
        if kind not in NAMES:
            raise InputError(f"--log-to is {word!r}", expected=FORMS)
        targets.append(LogTarget(kind, place or PLACES[kind]))
    kinds = [target.kind for target in targets]
    for kind in dict.fromkeys(kinds):
        if kinds.count(kind) > 1:
            raise InputError(f"--log-to names {kind} {kinds.count(kind)} times", expected="each once")
    return targets


def check_targets(targets: Sequence[LogTarget]) -> None:
    """Refuse what is not installed, and a folder of TensorBoard that cannot be written, with an InputError."""
    for target in targets:
        if find_spec(target.kind) is None:
            raise InputError(
                f"--log-to {target.kind} needs the package {target.kind}, which is not installed",
                fix=f"pip install 'focus-explorer[{target.kind}]'",
            )
        if target.kind == "tensorboard":
            folder = Path(os.path.expanduser(target.place))
            check_writable_folder(folder, explain=cannot_write("choose a writable folder: --log-to tensorboard:FOLDER"))


def trackers_state(out: Path) -> Path:
    """Where the logs of an unfinished training are remembered: beside its result, NAME.log-to.json."""
    return out.with_name(f"{out.stem if out.suffix == '.safetensors' else out.name}.log-to.json")


def evaluation_numbers(evaluation: Any) -> dict[str, float]:
    """An `Evaluation` as held_out/NAME, and as held_out/DOMAIN/NAME of domains with a name."""
    numbers = {"held_out/loss": evaluation.mean}
    numbers |= {f"held_out/{name}": getattr(evaluation, name) for name in ("dominance", "retained_pairs")}
    numbers["held_out/scored"] = sum(evaluation.scored.values())
    for domain, loss in evaluation.losses.items():
        if domain != HELD_OUT:
            numbers |= {f"held_out/{domain}/loss": loss, f"held_out/{domain}/scored": evaluation.scored[domain]}
    return _finite(numbers)


def result_numbers(results: Mapping[str, Any], group: str = "result") -> dict[str, float]:
    """The numbers of nested results as GROUP/NAME/NAME."""
    numbers: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            numbers |= result_numbers(value, f"{group}/{name}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers[f"{group}/{name}"] = value
    return _finite(numbers)


def _finite(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedRun:
    """One training as its logs know it; the key is the same in all logs, and again when the training is resumed."""

    key: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    resumed: bool = False


class Tracker(ABC):
    """A log of one training in a project or folder of one program, through the program's own client."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._client: Any = None  # of this training, once it is open

    @abstractmethod
    def open(self, run: TrackedRun, step: int) -> int | None:
        """Start or continue the log, replacing what it holds from `step` on if possible.

        Returns the last step that the log holds and keeps, 0 for none. None: the program cannot say.
        """

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add finite numbers by name; several calls may come for one step, which the client joins."""
        self._client.log(dict(numbers), step=step)

    @abstractmethod
    def close(self, step: int, numbers: Mapping[str, float], notes: Mapping[str, str], *, failed: bool) -> None:
        """Add results, and status and hashes as notes, to the last step, and end the log."""


class TensorBoardTracker(Tracker):
    """Writes to FOLDER/KEY; a step is on the disk once it is written, and replaces later ones of an earlier file."""

    def open(self, run: TrackedRun, step: int) -> int:
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(os.path.expanduser(self._place)) / run.key
        continued = run.resumed and folder.is_dir()
        self._client = SummaryWriter(str(folder), purge_step=step if continued else None)
        if not continued:
            self._client.add_text("settings", _code(run.settings), 0)
            self._client.flush()
        return 0

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._client.add_scalar(name, value, step)
        self._client.flush()

    def close(self, step: int, numbers: Mapping[str, float], notes: Mapping[str, str], *, failed: bool) -> None:
        self.write(step, numbers)
        self._client.add_text("result", _code(notes), step)
        self._client.close()


def _code(values: Mapping[str, Any]) -> str:
    """JSON as Markdown that keeps its lines."""
    return "".join(f"    {line}\n" for line in json.dumps(values, indent=1).splitlines())


class TrackioTracker(Tracker):
    """A run of trackio, a SQLite file for each project, which its thread writes twice a second."""

    def open(self, run: TrackedRun, step: int) -> int:
        import trackio

        self._client = trackio.init(
            project=self._place,
            name=run.key,
            config=dict(run.settings),
            resume="allow" if run.resumed else "never",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )
        following = getattr(self._client, "_next_step", 0)  # also of a run on a server; no public name says so
        return max(0, int(following) - 1)

    def close(self, step: int, numbers: Mapping[str, float], notes: Mapping[str, str], *, failed: bool) -> None:
        import trackio

        self._client.log({**numbers, **notes}, step=step)
        trackio.finish()


class WandbTracker(Tracker):
    """A run of wandb, online if a key is known, otherwise offline into its folder, which cannot say what it holds."""

    def open(self, run: TrackedRun, step: int) -> None:
        import wandb

        online = wandb.setup().settings.mode in ("online", "shared")
        settings: dict[str, Any] = {"console": "off"}
        if FLUSH in wandb.Settings.model_fields:
            settings[FLUSH] = FLUSH_SECONDS
        self._client = wandb.init(
            project=self._place,
            id=run.key,
            name=run.key,
            config=dict(run.settings),
            mode="offline" if online and not wandb.login(prompt=False) else None,
            resume="allow" if run.resumed else None,
            settings=wandb.Settings(**settings),
        )

    def close(self, step: int, numbers: Mapping[str, float], notes: Mapping[str, str], *, failed: bool) -> None:
        self._client.summary.update({**numbers, **notes})
        self._client.finish(exit_code=1 if failed else 0)


CLASSES: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "trackio": TrackioTracker,
    "wandb": WandbTracker,
}


@dataclass(slots=True)
class _Log:
    """A tracker with the last step in its log, `remembered` for a resume where the program cannot say it."""

    target: LogTarget
    tracker: Tracker
    opened: bool = False
    last: int = 0
    remembered: bool = False


class TrainingTrackers:
    """Context that logs one training; takes the same calls as `TrainingRecorder`.

    The programs are opened with the first step. Which log a resumed training continues is kept in `state`, a small file
    that exists until the training is done. `phases` names each part of a training and the steps before it. None: its
    numbers are named train/NAME.
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
        self._forgetful = False  # if the state cannot be written
        self._end: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        return self._run.key

    def __enter__(self) -> Self:
        """Nothing is written before the first step."""
        return self

    def step(self, step: Any) -> None:
        """Log a `TrainStep`, unless the log has it from before a resume."""
        group, before = ("train", 0) if self._phases is None else (step.phase, self._phases[step.phase])
        number = before + step.step
        numbers = _finite({f"{group}/{name}": getattr(step, name) for name in _OF_STEP})  # without what is not measured
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
        """Say how it ended, as `TrainingRecorder.finish` does; written when the block is left."""
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
            if isinstance(error, TrainingStopped):
                self.finish("stopped", f"stopped after step {error.step}")
            else:
                stopped = isinstance(error, KeyboardInterrupt)
                self.finish("done" if error is None else "stopped" if stopped else "failed", str(error or ""))
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
                self._logs.remove(log)
                with bars_hidden():
                    name = NAMES[log.target.kind]
                    self._warn(f"{name} takes no more of this training, which continues ({first_line(error)})")


def _new_key(name: str) -> str:
    """NAME-DATE-TIME-RANDOM of letters that folders and addresses may have."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:_NAME_LENGTH] or "training"
    return f"{plain}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _read(state: Path) -> dict[str, Any]:
    """What the state file says; empty if it is missing or damaged."""
    try:
        kept = json.loads(state.read_text(encoding="utf-8"))
        return {"key": str(kept["key"]), "last": {str(kind): int(step) for kind, step in kept["last"].items()}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
