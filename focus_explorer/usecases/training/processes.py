"""Trainings for the page and the command line: listed from the database, run as processes of their own.

A training started here is `focus-explorer train` in another process, so the page stays quick, and closing the page
stops nothing. The page follows it through the database and its log.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from focus_explorer.data.queries import fetch, fetch_training
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.settings import asset_path, with_process_user
from focus_explorer.usecases.centroids.files import add_centroids
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import SAMPLES
from focus_explorer.usecases.training.film import Films
from focus_explorer.usecases.training.request import TrainRequest, checkpoint_of, flag, plan_training
from focus_explorer.usecases.training.texts import gather_texts
from focus_explorer.usecases.users import acting_user, check_owner, log_change
from focus_explorer.views.payloads import centroids as payloads
from focus_explorer.views.training import curves_payload, training_summary
from focus_runtime.store.training import is_alive

INTERRUPTED = (
    "its process ended without a word: it was killed, the memory ran out, or the machine went down; continuing "
    "does the steps after the last checkpoint again, and some of the curve may be missing"
)
LIVE = ("running", "stopping")
STOPPED_STATUS = 130
LEAVING_SECONDS = 15.0  # that a process may take to exit after it was killed or recorded its end


@dataclass(slots=True)
class _Job:
    process: subprocess.Popen[bytes]
    out: str
    name: str
    log: Path
    started: datetime
    owner: str | None

    def has_recorded_its_end(self, row: dict[str, Any] | None) -> bool:
        """Whether the training's row says how it ended; the process itself may still be exiting."""
        return row is not None and row["finished_at"] is not None and row["finished_at"] >= self.started


class Trainings:
    """Lists trainings, and starts, stops and continues one at a time. Safe to call from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.films = Films(service)
        self._job: _Job | None = None
        self._stopping: set[str] = set()  # results of the trainings to which a stop was sent
        self._lock = threading.RLock()
        atexit.register(self._warn_if_running)

    def rows(self) -> list[dict[str, Any]]:
        """Every training, newest first, with its status here; `interrupted` is one whose process died."""
        with self._lock:
            return [self._with_status(row) for row in fetch(self.service.database, "trainings").to_pylist()]

    def _with_status(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of `training_runs` with parsed JSON and its status on this machine."""
        row = row | {name: json.loads(row[name]) for name in ("config", "settings", "texts", "versions", "validation")}
        row["domains"] = json.loads(row["domains"] or "{}")  # NULL in a row of an earlier version
        here = row["host"] == socket.gethostname()
        if row["status"] == "running":
            if self._job is not None:
                self._job.process.poll()  # collects a process that has ended
            if not is_alive(row["host"], row["pid"], row["process_started"]):
                row |= {"status": "interrupted", "message": INTERRUPTED}
            elif row["out"] in self._stopping:
                row["status"] = "stopping"
        ended = row["status"] in ("stopped", "failed", "interrupted")
        row["resumable"] = here and ended and bool(row["command"]) and checkpoint_of(row["out"]).exists()
        row["usable"] = here and row["status"] == "done" and os.path.exists(row["out"])
        return row

    def get(self, training_id: str) -> dict[str, Any]:
        """One training, as `rows` has it; a NotFoundError if there is none."""
        return self._with_status(fetch_training(self.service.database, training_id))

    def payload(self, shown: dict[str, dict[str, int]]) -> payloads.TrainingsPayload:
        """What the Training tab needs now; `shown` has the last step of each mode of each curve that it draws."""
        rows = self.rows()
        curves: dict[str, dict[str, payloads.CurvePayload]] = {}
        if shown:
            seen = [(key, mode, step) for key, modes in shown.items() for mode, step in modes.items()]
            ids, modes, steps = zip(*seen, ("", "", 0), strict=True)  # an empty list has no type in SQL
            seen_lists = {"seen_ids": list(ids), "seen_modes": list(modes), "seen_steps": list(steps)}
            for name in ("training_steps", "training_evaluations"):
                since = fetch(self.service.database, name, training_ids=list(shown), **seen_lists)
                for key, made in curves_payload(since).items():
                    curves.setdefault(key, {}).update(made)
        return {"trainings": [training_summary(row) for row in rows], "curves": curves, "job": self._job_state(rows)}

    def _job_state(self, rows: list[dict[str, Any]]) -> payloads.TrainingJobPayload | None:
        """The process started last; None when its row says the same."""
        with self._lock:
            job = self._job
            if job is None:
                return None
            row = next((row for row in rows if row["out"] == job.out), None)
            status = job.process.poll()
            if status is None:
                if row is not None and (row["status"] in LIVE or job.has_recorded_its_end(row)):
                    return None
                state: payloads.TrainingJobState = "stopping" if job.out in self._stopping else "starting"
                return {"name": job.name, "out": job.out, "state": state, "message": ""}
            # the signal may come while Python starts, which then ends in ways of its own
            if status == STOPPED_STATUS or (row is None and status != 0 and job.out in self._stopping):
                return None if row else {"name": job.name, "out": job.out, "state": "stopped", "message": ""}
            if status == 0 or (row is not None and row["status"] in ("failed", "done")):
                return None
            return {"name": job.name, "out": job.out, "state": "failed", "message": _last_error(job.log, status)}

    def start(
        self,
        request: TrainRequest,
        uploads: list[str],
        held_out: list[str] | None = None,
        *,
        domains: bool = False,
        name: Callable[[str], str] = flag,
    ) -> str:
        """Start a training in its own process; returns the path of its result, which identifies it in `payload`.

        Args:
            request: what to train; its `text`, `val` and `out` are chosen here.
            uploads: text files, copied so that the training can be continued later; none means the sample texts.
            held_out: text files scored at the end, and during the training if `request` says so.
            domains: every file is a domain of its own, named after it: drawn from equally often, scored apart.
        """
        with self._lock:
            self._refuse_a_second()
            gather_texts([*uploads, *(held_out or [])] or [str(asset_path("samples"))])
            folder = self._folder / f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
            later = ("later",)  # their files are copied once the settings are known to be good
            out = str((folder / "centroids.safetensors").resolve())
            request = replace(request, text=later, val=later if held_out else (), out=out)
            plan_training(request, name=name)  # a bad setting is refused before anything is written
            try:
                texts = tuple(_copy(path, folder / "texts", named=domains) for path in uploads)
                val = tuple(_copy(path, folder / "held-out", named=domains) for path in held_out or [])
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                raise InputError(
                    f"cannot keep the texts in {folder}: {error.strerror}", fix="free some space"
                ) from error
            samples = tuple(_word(str(asset_path("samples", name)), named=domains) for name in SAMPLES.values())
            request = replace(request, text=texts or samples, val=val)
            self._spawn(
                ["train", *request.to_arguments()], request.out, request.name or "centroids", folder, folder / "log.txt"
            )
            return request.out

    def resume(self, training_id: str) -> str:
        """Continue a stopped, interrupted or failed training from its checkpoint; returns the path of its result."""
        with self._lock:
            self._refuse_a_second()
            row = self.get(training_id)
            check_owner(f"the training {row['name']}", row["owner"])
            if not row["resumable"]:
                raise InputError(
                    f"the training {row['name']} cannot be continued",
                    expected="a stopped training whose checkpoint is on this machine",
                    fix="start a new one",
                )
            words = shlex.split(row["command"])[1:]
            words += [] if "--resume" in words else ["--resume"]
            log = self._folder / f"{training_id}.log"  # not in the result's folder, which may hold a file of that name
            self._spawn(words, row["out"], row["name"], Path(row["folder"]), log)
            log_change("training continued", training=training_id)
            return str(row["out"])

    @property
    def _folder(self) -> Path:
        return self.service.database.path.parent / "trainings"

    def _spawn(self, words: list[str], out: str, name: str, folder: Path, log: Path) -> None:
        database = str(self.service.database.path.resolve())
        command = [sys.executable, "-m", "focus_explorer.cli", *words, "--db", database]
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as stream:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    start_new_session=True,
                    env=with_process_user(acting_user()),
                )
        except OSError as error:
            raise InputError(f"the training cannot be started in {folder}: {error.strerror}") from error
        self._stopping.discard(out)
        self._job = _Job(process, out, name, log, datetime.now(UTC), acting_user())

    def _refuse_a_second(self) -> None:
        rows = self.rows()
        busy = [row["name"] for row in rows if row["status"] in LIVE and row["host"] == socket.gethostname()]
        job = self._job
        if job is not None and job.process.poll() is None:
            row = next((row for row in rows if row["out"] == job.out), None)
            killed = row is not None and row["status"] == "interrupted" and row["pid"] == job.process.pid
            if killed or job.has_recorded_its_end(row):
                with suppress(subprocess.TimeoutExpired):
                    job.process.wait(LEAVING_SECONDS)
            busy += [job.name] if job.process.poll() is None else []
        if busy:
            raise InputError(
                f"the training {busy[0]} is still running", fix="stop it, or wait for it, before you start another"
            )

    def stop(self, training_id: str | None = None) -> None:
        """Make a training save its last finished step and end; None: the process started last, even before a step."""
        with self._lock:
            job = self._job if self._job is not None and self._job.process.poll() is None else None
            if training_id is None:
                if job is None:
                    raise NotFoundError("no training is running")
                check_owner(f"the training {job.name}", job.owner)
                out, pid = job.out, job.process.pid
            else:
                row = self.get(training_id)
                check_owner(f"the training {row['name']}", row["owner"])
                if row["status"] not in LIVE or row["host"] != socket.gethostname():
                    raise InputError(f"the training {row['name']} is not running on this machine")
                out, pid = row["out"], row["pid"]
            if out not in self._stopping:  # a second signal would not wait for the step under way
                self._stopping.add(out)
                os.kill(pid, signal.SIGINT)
                log_change("training stopped", training=training_id or "")

    def film(self, training_id: str, layer: int | None, text: str) -> payloads.FilmPayload:
        return self.films.payload(self.get(training_id), layer, text)

    def use(self, training_id: str) -> payloads.UsedTrainingPayload:
        """Make a finished training's result a centroid file one can choose."""
        row = self.get(training_id)
        if not row["usable"]:
            raise InputError(f"the training {row['name']} has no finished file on this machine", fix="let it finish")
        digest = hashlib.sha256(Path(row["out"]).read_bytes()).hexdigest()
        if digest != row["centroids_sha256"]:
            raise InputError(
                f"{row['out']} is no longer the file this training wrote",
                fix="upload it on the Centroids page if you want the newer one",
            )
        add_centroids(self.service, row["out"], row["name"], None)
        return {"sha256": digest, "name": row["name"], "model": row["model_id"]}

    def _warn_if_running(self) -> None:
        if self._job is not None and self._job.process.poll() is None:
            pid = self._job.process.pid
            print(f"the training {self._job.name} continues; `kill -INT {pid}` stops it", file=sys.stderr)


def _copy(source: str, folder: Path, *, named: bool) -> str:
    """Keep a text under a name of its own; returns the word that `--text` or `--val` takes for it."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = _domain_name(source) if named else Path(source).stem
    target = folder / f"{stem}{Path(source).suffix}"
    number = 2
    while target.exists():
        target = folder / f"{stem}-{number}{Path(source).suffix}"
        number += 1
    shutil.copyfile(source, target)
    return _word(str(target.resolve()), named=named)


def _word(path: str, *, named: bool) -> str:
    """PATH, or NAME=PATH with the file's name for the domain's."""
    return f"{_domain_name(path)}={path}" if named else path


def _domain_name(path: str) -> str:
    """The file's name as `--text NAME=PATH` takes it."""
    return re.sub(r"[^\w.-]+", "-", Path(path).stem)


def _last_error(log: Path, status: int) -> str:
    """The child's own one-line error, or the path of its log."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if errors:
        return errors[-1]
    if status < 0:
        return f"the training was ended by signal {-status}, perhaps because the memory ran out; its log is {log}"
    return f"something went wrong inside the training; the details are in {log}"
