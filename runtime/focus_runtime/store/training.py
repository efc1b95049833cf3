"""Training curves -> rows, written while the training runs, without delaying it.

A thread of its own writes about once a second. A locked, full or missing database does not stop the training: the
steps wait in memory, one warning is given, and the last attempt at the end waits longest.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import duckdb

from focus_runtime.errors import StoreBusyError, StoreError, TrainingStopped
from focus_runtime.files import process_runs
from focus_runtime.store.database import Database
from focus_runtime.store.runs import insert, new_id

if TYPE_CHECKING:
    from focus_runtime.fit.settings import TrainStep
    from focus_runtime.fit.validation import Evaluation

FLUSH_SECONDS = 1.0
MOST_SECONDS = 10.0
FLUSH_SHARE = 0.04  # of a core at most is spent writing: flushes become rarer when they become costly
FLUSH_WAIT = 0.5
LAST_WAIT = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingInfo:
    """The record of a training before its first step; the columns of `training_runs` of the same names."""

    name: str
    kind: str  # what is trained, for example "centroids", "two-phase", "from scratch", or a baseline's name
    model_id: str
    model_fingerprint: str
    steps: int
    seed: int
    device: str
    dtype: str
    out: str = ""  # absolute path of the result; a resumed training is identified by it
    config: dict[str, Any] = field(default_factory=dict)  # FocusConfig; empty for a method without groups
    settings: dict[str, Any] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    domains: dict[str, Any] = field(default_factory=dict)  # weight and texts of each by name, where there are some
    text_sha256: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    command: str = ""  # with which it can be started again, in this folder; "" when unknown
    folder: str = ""
    owner: str | None = None


def process_start(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 if unknown, -1 if there is none or it has ended."""
    if not Path("/proc/self/stat").exists():
        return -1 if os.name == "posix" and not process_runs(pid) else 0  # signal 0 is a real signal on Windows
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return -1
    return -1 if fields[0] in "ZX" else int(fields[19])


def is_alive(host: str, pid: int, started: int) -> bool:
    """Whether the recorded process still runs; True if that cannot be known, as of one on another machine."""
    if host != socket.gethostname():
        return True
    now = process_start(pid)
    return now >= 0 and (not started or not now or now == started)


class TrainingRecorder:
    """Context that records one training; `step` never blocks.

    Args:
        resume: continue the newest training of the same `info.out`, replacing its steps from the first one reported.
        warn: called once when rows have to wait, and at the end if they could not be written.

    Without `finish` the status follows from how the block ended: done, stopped (KeyboardInterrupt, TrainingStopped) or
    failed. A training that ended without a single step leaves no row.
    """

    def __init__(
        self,
        database: Database,
        info: TrainingInfo,
        *,
        resume: bool = False,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.training_id = new_id()
        self.info = info
        self._database = Database(database.path, wait=FLUSH_WAIT)
        self._resume, self._warn = resume, warn
        self._rows: list[dict[str, Any]] = []
        self._evaluations: list[dict[str, Any]] = []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._reported = 0
        self._opened = self._warned = False
        self._offset: float | None = None  # seconds of the part that is resumed; None before the first step
        self._end: dict[str, Any] = {}  # columns of `training_runs` that the end decides
        self._ending = False
        self._started = time.monotonic()
        self._pause = FLUSH_SECONDS

    def __enter__(self) -> Self:
        """Insert the training's row; a resumed one is changed only with its first step."""
        if not self._resume:
            try:
                with self._database.write() as connection:
                    self._open(connection)
                self._opened = True
            except StoreBusyError as error:
                self._complain(error)
        self._thread = threading.Thread(target=self._work, name="training-recorder", daemon=True)
        self._thread.start()
        return self

    def step(self, step: TrainStep) -> None:
        """Record a step."""
        row = {"mode": "focus", **asdict(step), "elapsed": time.monotonic() - self._started}
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):  # a method without groups has no dominance
                row[name] = None
        with self._lock:
            self._reported += 1
            self._rows.append(row)

    def evaluation(self, evaluation: Evaluation) -> None:
        """Record the losses on held-out text, one row for each domain."""
        shared = {name: getattr(evaluation, name) for name in ("step", "dominance", "retained_pairs")}
        with self._lock:
            self._reported += 1
            self._evaluations += [
                shared | {"domain": name, "loss": loss, "scored": evaluation.scored[name]}
                for name, loss in evaluation.losses.items()
            ]

    def finish(
        self,
        status: str,
        message: str = "",
        *,
        centroids_sha256: str = "",
        validation: dict[str, Any] | None = None,
        stop_reason: str = "",
    ) -> None:
        """Record how it ended: "done", "stopped" or "failed"; written when the block is left.

        `validation` holds held-out scores, `stop_reason` why a training that is done took no more steps.
        """
        self._end = {
            "status": status,
            "message": message,
            "centroids_sha256": centroids_sha256,
            "validation": json.dumps(validation or {}, sort_keys=True),
            "stop_reason": stop_reason,
            "finished_at": datetime.now(UTC),
        }

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left, and wait longer for the database."""
        if not self._end:
            if isinstance(error, TrainingStopped):
                self.finish("stopped", f"stopped after step {error.step}")
            else:
                stopped = isinstance(error, KeyboardInterrupt)
                self.finish("done" if error is None else "stopped" if stopped else "failed", str(error or ""))
        self._stop.set()
        self._thread.join()
        self._database.wait = LAST_WAIT
        self._ending = True  # only now: a write that began before the last rows came must not say that it is done
        problem = self._flush()
        if problem is not None:
            self._warn(f"the training curve could not be stored: {problem}")

    def _work(self) -> None:
        while not self._stop.wait(self._pause):
            with self._lock:
                waiting = bool(self._rows or self._evaluations)
            if not waiting:
                continue
            clock = time.thread_time()  # waiting for a busy processor or disk takes nothing from the training
            problem = self._flush()
            self._pause = min(max(FLUSH_SECONDS, (time.thread_time() - clock) / FLUSH_SHARE), MOST_SECONDS)
            if problem is not None:
                self._complain(problem)

    def _complain(self, problem: Exception) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"the training curve waits in memory, the training continues ({problem})")

    def _flush(self) -> Exception | None:
        """Write everything that waits in one transaction; on a problem all of it is kept for the next attempt."""
        with self._lock:
            rows, self._rows = self._rows, []
            evaluations, self._evaluations = self._evaluations, []
        try:
            with self._database.write() as connection:
                offset = self._write(connection, rows, evaluations)
        except (StoreError, duckdb.Error) as error:
            with self._lock:
                self._rows, self._evaluations = rows + self._rows, evaluations + self._evaluations
            return error
        self._opened, self._offset = True, offset
        return None

    def _write(self, connection: Any, rows: list[dict[str, Any]], evaluations: list[dict[str, Any]]) -> float | None:
        """Write rows, and all that ends a training; returns the seconds that a resumed one had taken before."""
        offset = self._offset
        if self._ending and not self._reported:  # its row goes, unless a resumed training had nothing left to do
            if not self._resume:
                connection.execute("DELETE FROM training_runs WHERE training_id = ?", [self.training_id])
            elif self._end["status"] == "done" and self._find(connection):
                self._update(connection, self._end)
            return offset
        if not self._opened:
            self._open(connection)
        own = {"training_id": self.training_id}  # known once the row of a resume is found
        if rows:
            if offset is None:
                self._forget(connection, "training_steps", rows[0]["step"])
                self._forget(connection, "training_evaluations", rows[0]["step"])
                earlier = "SELECT max(elapsed) FROM training_steps WHERE training_id = ?"
                offset = float(connection.execute(earlier, [self.training_id]).fetchall()[0][0] or 0.0)
            insert(connection, "training_steps", [row | own | {"elapsed": row["elapsed"] + offset} for row in rows])
        if evaluations:
            self._forget(connection, "training_evaluations", evaluations[0]["step"])
            insert(connection, "training_evaluations", [row | own for row in evaluations])
        if self._ending:
            self._update(connection, self._end)
        return offset

    def _open(self, connection: Any) -> None:
        process = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_started": max(0, process_start(os.getpid())),
        }
        if self._resume and self._find(connection):
            self._update(connection, {"status": "running", "message": "", "finished_at": None, **process})
            return
        values = asdict(self.info)
        for name in ("config", "settings", "texts", "domains", "versions"):
            values[name] = json.dumps(values[name], sort_keys=True)
        row = {
            "training_id": self.training_id,
            "created_at": datetime.now(UTC),
            "status": "running",
            "validation": "{}",
            **dict.fromkeys(("message", "centroids_sha256", "stop_reason"), ""),
            **process,
            **values,
        }
        insert(connection, "training_runs", [row])

    def _find(self, connection: Any) -> bool:
        """Continue the newest training of the same result; False where there is none."""
        newest = connection.execute(
            "SELECT training_id FROM training_runs WHERE out = ? AND out <> '' ORDER BY created_at DESC LIMIT 1",
            [self.info.out],
        ).fetchall()
        if newest:
            self.training_id = newest[0][0]
        return bool(newest)

    def _forget(self, connection: Any, table: str, step: int) -> None:
        """Remove what a resumed training does again."""
        connection.execute(f"DELETE FROM {table} WHERE training_id = ? AND step >= ?", [self.training_id, step])

    def _update(self, connection: Any, values: dict[str, Any]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        own = [*values.values(), self.training_id]
        connection.execute(f"UPDATE training_runs SET {assignments} WHERE training_id = ?", own)
