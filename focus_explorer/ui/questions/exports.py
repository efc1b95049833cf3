"""Files made for a person at the page: tables, figures, bundles and reports, from the code of the command line.

A file is made on a thread, lies in a temporary folder under an unguessable name, and is gone a while after.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.exports.bundle.write import write_bundle
from focus_explorer.exports.figures.write import FIGURE_FORMATS, FIGURES, LAYERED, PRESETS, checked_layer, write_figure
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import FORMATS, SUFFIXES, write_table
from focus_explorer.services.jobs import Job, run_job
from focus_explorer.services.service import Service
from focus_explorer.settings import default_database

ADDRESS = "focus-explorer/export"
MOST_FILES, MOST_AT_ONCE, KEPT_SECONDS = 8, 2, 900
KINDS = ("table", "figure", "bundle", "report")
REPORT_FORMATS = ("html", "pdf")
WITHOUT_LAYERS = ("tokens", "losses", "timings", "timing_repeats", "comparisons")
Question = dict[str, Any]
_EXPORTS: WeakKeyDictionary[Service, Exports] = WeakKeyDictionary()
_FIRST = threading.Lock()


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """One file of one run.

    Attributes:
        kind: one of `KINDS`.
        name: of the table or figure; format: of the file.
        preset: of a figure; layer: of a figure or a table's rows, None for all.
        text: whether a bundle includes the text.
    """

    kind: str
    run_id: str
    name: str = ""
    format: str = ""
    preset: str = ""
    layer: int | None = None
    text: bool = False

    @property
    def file_name(self) -> str:
        """Made of checked names only."""
        layer = "" if self.layer is None else f"-layer{self.layer}"
        if self.kind == "bundle":
            return f"{self.run_id}-bundle{'-with-text' if self.text else ''}.zip"
        if self.kind == "report":
            return f"{self.run_id}-report.{self.format}"
        suffix = SUFFIXES[self.format] if self.kind == "table" else f".{self.format}"
        return f"{self.run_id}-{self.name}{layer}{suffix}"

    def command(self, database: Path) -> str:
        """The command that writes the same bytes."""
        layer = [] if self.layer is None else ["--layer", str(self.layer)]
        words = {
            "table": ["export", self.run_id, "--what", self.name, "--format", self.format, *layer],
            "figure": [
                "figure",
                self.run_id,
                "--what",
                self.name,
                "--format",
                self.format,
                "--preset",
                self.preset,
                *layer,
            ],
            "bundle": ["bundle", self.run_id, *["--text"] * self.text],
            "report": ["report", self.run_id, *["--no-pdf"] * (self.format == "html")],
        }[self.kind]
        out = f"{self.run_id}-report" if self.kind == "report" else self.file_name  # a report is a folder there
        elsewhere = [] if database == default_database() else ["--db", str(database)]
        return shlex.join(["focus-explorer", *words, "--out", out, *elsewhere])


def wish(service: Service, question: Question) -> Wish:
    """What the page asks for, checked.

    Raises:
        InputError: there is no such run, table, figure, format, preset or layer.
    """
    run_id = str(fetch_run(service.database, str(question.get("run")))["run_id"])
    kind = str(question.get("kind"))
    if kind == "bundle":
        return Wish(kind=kind, run_id=run_id, text=question.get("text") is True)
    if kind == "report":
        return Wish(kind=kind, run_id=run_id, format=_one_of(question, "format", REPORT_FORMATS))
    if kind == "table":
        name, form = _one_of(question, "name", TABLES), _one_of(question, "format", FORMATS)
        return Wish(kind=kind, run_id=run_id, name=name, format=form, layer=_layer(service, run_id, question))
    if kind == "figure":
        name, form = _one_of(question, "name", FIGURES), _one_of(question, "format", FIGURE_FORMATS)
        layer = checked_layer(service.database, run_id, _layer(service, run_id, question)) if name in LAYERED else None
        preset = _one_of(question, "preset", PRESETS)
        return Wish(kind=kind, run_id=run_id, name=name, format=form, preset=preset, layer=layer)
    raise InputError(f"there is no export {kind!r}", expected=" or ".join(KINDS))


def _one_of(question: Question, what: str, known: Any) -> str:
    value = question.get(what)
    if value not in known:
        raise InputError(f"there is no {what} {value!r}", expected=" or ".join(known))
    return str(value)


def _layer(service: Service, run_id: str, question: Question) -> int | None:
    layer = question.get("layer")
    if layer is None:
        return None
    if not isinstance(layer, int) or isinstance(layer, bool):
        raise InputError(f"the layer is {layer!r}", expected="a layer number")
    return checked_layer(service.database, run_id, layer)


def make(service: Service, wanted: Wish, folder: Path, job: Job) -> Path:
    """Write the file.

    Raises:
        InputError: it cannot be made. Cancelled: the job was stopped.
    """
    out = folder / wanted.file_name
    job.step("Writing the file", 0.1)
    if wanted.kind == "table":
        return write_table(service.database, wanted.run_id, wanted.name, wanted.format, out, layer=wanted.layer)
    if wanted.kind == "bundle":
        return write_bundle(service, [wanted.run_id], out, text=wanted.text, progress=job.step)
    if wanted.kind == "report":
        return _report(service, wanted, folder, job).rename(out)
    if (
        wanted.name == "map"
        and not fetch(service.database, "projection", run_id=wanted.run_id, layer=wanted.layer).num_rows
    ):
        job.step(f"Making the map of layer {wanted.layer}", 0.2)
        service.projection_payload(wanted.run_id, wanted.layer)
    job.step("Drawing", 0.5)
    return write_figure(
        service.database, wanted.run_id, wanted.name, wanted.format, out, preset=wanted.preset, layer=wanted.layer
    )


def _report(service: Service, wanted: Wish, folder: Path, job: Job) -> Path:
    from focus_explorer.exports.report.write import write_report

    written = write_report(service, [wanted.run_id], folder, pdf=wanted.format == "pdf", progress=job.step)
    if wanted.format == "html":
        return written.html
    if written.pdf is None:
        raise InputError(written.note, fix="choose HTML")
    return written.pdf


@dataclass(slots=True)
class _File:
    job: Job
    folder: Path
    begun: float
    path: Path | None = None


class Exports:
    """Files under way and files to fetch, of one database; safe to call from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._home = tempfile.TemporaryDirectory(prefix="focus-export-")  # removed when the server ends
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, wanted: Wish) -> Question:
        """Begin a file.

        Raises:
            InputError: others are being made.
        """
        with self._lock:
            self._forget()
            if sum(file.job.live for file in self._files.values()) >= MOST_AT_ONCE:
                raise InputError("other files are being made at the moment", fix="wait for them, or stop one")
            token = secrets.token_urlsafe(24)
            file = _File(Job("export", wanted.run_id), Path(self._home.name) / token, time.monotonic())
            file.folder.mkdir()
            self._files[token] = file

        def work(job: Job) -> None:
            file.path = make(self.service, wanted, file.folder, job)

        threading.Thread(target=run_job, args=(file.job, work), daemon=True).start()
        return self.state(token)

    def state(self, token: str) -> Question:
        """How far a file is, and where it lies once it is there.

        Raises:
            InputError: it is gone.
        """
        file = self._files.get(token)
        if file is None:
            raise InputError("this file is no longer kept", fix="make it again")
        ready = None
        if file.job.state == "done" and file.path is not None and file.path.exists():
            ready = {"name": file.path.name, "bytes": file.path.stat().st_size, "address": f"{ADDRESS}/{token}"}
        return {"id": token, "job": file.job.told(), "file": ready}

    def stop(self, token: str) -> Question:
        """Stop making a file."""
        file = self._files.get(token)
        if file is not None:
            file.job.stopped.set()
        return self.state(token)

    def path(self, token: str) -> Path | None:
        """A finished file, None if there is none of this name."""
        file = self._files.get(token)
        finished = file is not None and file.job.state == "done"
        return file.path if file is not None and finished and file.path is not None and file.path.exists() else None

    def _forget(self) -> None:
        old = [token for token, file in self._files.items() if not file.job.live]
        for number, token in enumerate(old):
            if len(old) - number >= MOST_FILES or time.monotonic() - self._files[token].begun > KEPT_SECONDS:
                shutil.rmtree(self._files.pop(token).folder, ignore_errors=True)


def exports(service: Service) -> Exports:
    """The files of one service."""
    with _FIRST:
        if service not in _EXPORTS:
            _EXPORTS[service] = Exports(service)
        return _EXPORTS[service]


def routes(service: Service) -> list[Route]:
    """The one address files are fetched from, by their unguessable names alone."""

    def fetch_file(request: Request) -> Response:
        path = exports(service).path(request.path_params["token"])
        if path is None:
            return PlainTextResponse("This file is no longer kept. Make it again on the page.\n", 404)
        return FileResponse(path, filename=path.name, headers={"Cache-Control": "no-store"})

    return [Route(f"/{ADDRESS}/{{token}}", fetch_file, methods=["GET"])]


def choices(service: Service, question: Question) -> Question:
    """What can be exported of a run: run."""
    run = fetch_run(service.database, str(question.get("run")))
    return {
        "title": run["name"] or run["title"],
        "kinds": list(KINDS),
        "tables": [
            {"name": name, "about": about, "layers": name not in WITHOUT_LAYERS} for name, about in TABLES.items()
        ],
        "formats": list(FORMATS),
        "figures": [{"name": name, "about": about, "layers": name in LAYERED} for name, about in FIGURES.items()],
        "figure_formats": list(FIGURE_FORMATS),
        "report_formats": list(REPORT_FORMATS),
        "presets": [
            {"name": name, "about": preset.about, "width": preset.width, "height": preset.height}
            for name, preset in PRESETS.items()
        ],
    }


EXPORT_ANSWERS: dict[str, Callable[[Service, Question], Question]] = {
    "export_choices": choices,
    "export_command": lambda service, asked: {"command": wish(service, asked).command(service.database.path)},
    "export_start": lambda service, asked: exports(service).start(wish(service, asked)),
    "export_state": lambda service, asked: exports(service).state(str(asked.get("id"))),
    "export_stop": lambda service, asked: exports(service).stop(str(asked.get("id"))),
}
