"""Files made in the background, kept for a while in a temporary folder under an unguessable name."""

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

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from focus_explorer.errors import InputError
from focus_explorer.exports.figures.write import write_figure
from focus_explorer.exports.mask import write_mask
from focus_explorer.exports.tables.write import write_table
from focus_explorer.usecases.jobs import Job, JobRunner, waiting_for_turn
from focus_explorer.usecases.maps import has_map, map_payload
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.runs import ExportFilePayload, ExportPayload
from focus_explorer.web.downloads.request import ExportRequest

ADDRESS = "focus-explorer/export"
MOST_FILES, MOST_AT_ONCE, KEPT_SECONDS = 8, 2, 900
IN_LINE = "Waiting for other files"
BUSY = ("other files are being made at the moment", "wait for them, or stop one")


def make(service: Service, request: ExportRequest, folder: Path, job: Job) -> Path:
    """Write the file.

    Args:
        service: database and model.
        request: which file.
        folder: to write it to.
        job: takes the progress.

    Returns:
        The file.

    Raises:
        InputError: it cannot be made.
        Cancelled: the job was stopped.
    """
    out = folder / request.file_name
    job.step("Writing the file", 0.1)
    if request.kind == "table":
        return write_table(service.database, request.run_id, request.name, request.format, out, layer=request.layer)
    if request.kind == "mask":
        assert request.layer is not None
        return write_mask(
            service.database,
            request.run_id,
            request.layer,
            request.format,
            out,
            rows=request.rows,
            head=request.head,
            progress=job.step,
        )
    if request.kind == "bundle":
        from focus_explorer.exports.bundle.write import write_bundle

        return write_bundle(service, [request.run_id], out, text=request.text, progress=job.step)
    if request.kind == "report":
        return _report(service, request, folder, job).rename(out)
    if request.name == "map" and not has_map(service.database, request.run_id, request.layer):
        job.step(f"Making the map of layer {request.layer}", 0.2)
        map_payload(service, request.run_id, request.layer)
    job.step("Drawing", 0.5)
    return write_figure(
        service.database, request.run_id, request.name, request.format, out, preset=request.preset, layer=request.layer
    )


def _report(service: Service, request: ExportRequest, folder: Path, job: Job) -> Path:
    from focus_explorer.exports.report.write import write_report

    written = write_report(service, [request.run_id], folder, pdf=request.format == "pdf", progress=job.step)
    if request.format == "html":
        return written.html
    if written.pdf is None:
        raise InputError(written.note, fix="choose HTML")
    return written.pdf


@dataclass(slots=True)
class _File:
    job: Job
    folder: Path
    started: float


class Downloads:
    """Files under way and files to fetch, of one service; safe to call from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._home = tempfile.TemporaryDirectory(prefix="focus-export-")  # removed when the server ends
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._jobs = JobRunner(most_live=MOST_AT_ONCE, busy=BUSY)
        self._lock = threading.Lock()

    def start(self, request: ExportRequest) -> ExportPayload:
        """Begin a file.

        Raises:
            InputError: others are being made.
        """
        token = secrets.token_urlsafe(24)
        folder = Path(self._home.name) / token

        def work(job: Job) -> Path:
            folder.mkdir()
            with ExitStack() as turn:
                with waiting_for_turn():
                    turn.enter_context(self.service.drawing.held(job.user, lambda ahead, _: job.step(IN_LINE, 0.0)))
                return make(self.service, request, folder, job)

        with self._lock:
            self._forget()
            job = self._jobs.start(token, work, kind="export", run_id=request.run_id)
            self._files[token] = _File(job, folder, time.monotonic())
        return self.state(token)

    def state(self, token: str) -> ExportPayload:
        """The job of a file, and its name, size and address once it is made.

        Raises:
            InputError: it is gone.
        """
        file = self._files.get(token)
        if file is None:
            raise InputError("this file is no longer kept", fix="make it again")
        status = file.job.status()  # before the path: a job that is done has its file
        path = self.path(token)
        ready: ExportFilePayload | None = None
        if path is not None:
            ready = {"name": path.name, "bytes": path.stat().st_size, "address": f"{ADDRESS}/{token}"}
        return {"id": token, "job": status, "file": ready}

    def stop(self, token: str) -> ExportPayload:
        """Stop making a file."""
        file = self._files.get(token)
        if file is not None:
            file.job.stop()
        return self.state(token)

    def path(self, token: str) -> Path | None:
        """A finished file, None if there is none of this name."""
        file = self._files.get(token)
        path: Path | None = None if file is None else file.job.result  # None until the job is done
        return path if path is not None and path.exists() else None

    def _forget(self) -> None:
        old = [token for token, file in self._files.items() if not file.job.live]
        for number, token in enumerate(old):
            if len(old) - number >= MOST_FILES or time.monotonic() - self._files[token].started > KEPT_SECONDS:
                shutil.rmtree(self._files.pop(token).folder, ignore_errors=True)


def routes(service: Service) -> list[Route]:
    """The one address files are fetched from, by their unguessable names alone."""

    def fetch_file(request: Request) -> Response:
        path = service.part(Downloads).path(request.path_params["token"])
        if path is None:
            return PlainTextResponse("This file is no longer kept. Make it again on the page.\n", 404)
        return FileResponse(path, filename=path.name, headers={"Cache-Control": "no-store"})

    return [Route(f"/{ADDRESS}/{{token}}", fetch_file, methods=["GET"])]
