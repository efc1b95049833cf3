"""One file of a run as the page requests it: checked, with its file name and the command that writes the same bytes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from focus_explorer.errors import InputError
from focus_explorer.exports.figures.write import FIGURE_FORMATS, FIGURES, LAYERED, PRESETS, checked_layer
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import FORMATS, SUFFIXES
from focus_explorer.services.runs import check_run
from focus_explorer.services.service import Service
from focus_explorer.settings import default_database
from focus_explorer.ui.parameters import Request, layer_of, one_of, run_of

KINDS = ("table", "figure", "bundle", "report")
REPORT_FORMATS = ("html", "pdf")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportRequest:
    """One file of one run.

    Attributes:
        kind: one of `KINDS`.
        run_id: of the run.
        name: of the table or figure.
        format: of the file.
        preset: of a figure.
        layer: of a figure or a table's rows, None for all.
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


def read_request(service: Service, request: Request) -> ExportRequest:
    """The file a request names, checked: run, kind; name, format, preset, layer, text.

    Raises:
        InputError: there is no such run, table, figure, format, preset or layer.
    """
    run_id = run_of(request)
    check_run(service.database, run_id)
    kind = str(request.get("kind"))
    if kind == "bundle":
        return ExportRequest(kind=kind, run_id=run_id, text=request.get("text") is True)
    if kind == "report":
        return ExportRequest(kind=kind, run_id=run_id, format=one_of(request, "format", REPORT_FORMATS))
    if kind == "table":
        name, form = one_of(request, "name", TABLES), one_of(request, "format", FORMATS)
        return ExportRequest(kind=kind, run_id=run_id, name=name, format=form, layer=_layer(service, run_id, request))
    if kind == "figure":
        name, form = one_of(request, "name", FIGURES), one_of(request, "format", FIGURE_FORMATS)
        layer = checked_layer(service.database, run_id, _layer(service, run_id, request)) if name in LAYERED else None
        preset = one_of(request, "preset", PRESETS)
        return ExportRequest(kind=kind, run_id=run_id, name=name, format=form, preset=preset, layer=layer)
    raise InputError(f"there is no export {kind!r}", expected=" or ".join(KINDS))


def _layer(service: Service, run_id: str, request: Request) -> int | None:
    if request.get("layer") is None:
        return None
    return checked_layer(service.database, run_id, layer_of(request))
