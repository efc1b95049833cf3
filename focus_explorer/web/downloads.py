"""Files that the export dialog asks for: made in the background, kept for a while under an unguessable name."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request as HTTPRequest
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from focus_explorer.errors import InputError
from focus_explorer.exports.kinds import Export, FileRequest, read_request
from focus_explorer.usecases.jobs import Job, JobRunner, waiting_for_turn
from focus_explorer.usecases.request import Payload
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import acting_user
from focus_explorer.views.payloads.runs import ExportFilePayload, ExportPayload

ADDRESS = "focus-explorer/export"
MOST_FILES, MOST_AT_ONCE, KEPT_SECONDS = 8, 2, 900
IN_LINE = "Waiting for other files"
BUSY = ("other files are being made at the moment", "wait for them, or stop one")


def command(service: Service, request: FileRequest) -> Payload:
    """The command that writes the same file."""
    shown = service.database.path
    if acting_user() is not None:  # folders of the machine are nobody's business who does not own it
        shown = Path(shown.name)
    return {"command": read_request(service, request).command(shown)}


@dataclass(slots=True)
class _File:
    job: Job
    folder: Path
    made: float  # when it was finished, on the clock of `time.monotonic`
    removal: threading.Timer | None = None


class Downloads:
    """Files under way and files to fetch, of one service; safe to call from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._home = tempfile.TemporaryDirectory(prefix="focus-export-")  # removed when the server ends
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._jobs = JobRunner(most_live=MOST_AT_ONCE, busy=BUSY)
        self._lock = threading.Lock()

    def start(self, export: Export) -> ExportPayload:
        """Begin a file; an InputError where others are being made."""
        token = secrets.token_urlsafe(24)
        folder = Path(self._home.name) / token

        def work(job: Job) -> Path:
            try:
                folder.mkdir()
                with ExitStack() as turn:
                    with waiting_for_turn():
                        turn.enter_context(self.service.drawing.held(job.user, lambda *_: job.step(IN_LINE, 0.0)))
                    job.step("Writing the file", 0.1)
                    return export.write(self.service, folder / export.file_name, job.step)
            finally:
                self._remove_later(token)

        with self._lock:
            self._forget()
            job = self._jobs.start(token, work, kind="export", run_id=export.run_id)
            self._files[token] = _File(job, folder, time.monotonic())
        return self.state(token)

    def state(self, id: str) -> ExportPayload:
        """The job of a file, and its name, size and address once it is made; an InputError where it is gone."""
        file = self._files.get(id)
        if file is None:
            raise InputError("this file is no longer kept", fix="make it again")
        status = file.job.status()  # before the path: a job that is done has its file
        path = self.path(id)
        ready: ExportFilePayload | None = None
        if path is not None:
            ready = {"name": path.name, "bytes": path.stat().st_size, "address": f"{ADDRESS}/{id}"}
        return {"id": id, "job": status, "file": ready}

    def stop(self, id: str) -> ExportPayload:
        """Stop making a file."""
        file = self._files.get(id)
        if file is not None:
            file.job.stop()
        return self.state(id)

    def path(self, token: str) -> Path | None:
        """A finished file, None if there is none of this name."""
        file = self._files.get(token)
        path: Path | None = None if file is None else file.job.result  # None until the job is done
        return path if path is not None and path.exists() else None

    def _remove_later(self, token: str) -> None:
        """Remove a file `KEPT_SECONDS` from now, though nobody may make another one until then."""
        with self._lock:
            file = self._files[token]
            file.made = time.monotonic()
            file.removal = threading.Timer(KEPT_SECONDS, self._remove_old)
            file.removal.daemon = True
            file.removal.start()

    def _remove_old(self) -> None:
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        """Remove old files, and the oldest ones where there are many."""
        ended = [token for token, file in self._files.items() if not file.job.live]
        for number, token in enumerate(ended):
            if len(ended) - number >= MOST_FILES or time.monotonic() - self._files[token].made >= KEPT_SECONDS:
                file = self._files.pop(token)
                if file.removal is not None:
                    file.removal.cancel()
                shutil.rmtree(file.folder, ignore_errors=True)


def start(service: Service, request: FileRequest) -> Payload:
    return service.part(Downloads).start(read_request(service, request))


def routes(service: Service) -> list[Route]:
    """The one address files are fetched from, by their unguessable names alone."""

    def fetch_file(request: HTTPRequest) -> Response:
        path = service.part(Downloads).path(request.path_params["token"])
        if path is None:
            return PlainTextResponse("This file is no longer kept. Make it again on the page.\n", 404)
        return FileResponse(path, filename=path.name, headers={"Cache-Control": "no-store"})

    return [Route(f"/{ADDRESS}/{{token}}", fetch_file, methods=["GET"])]
