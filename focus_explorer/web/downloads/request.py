"""One file of a run as the page requests it: checked, with its file name and the command that writes the same bytes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from focus_explorer.errors import InputError
from focus_explorer.exports.figures.write import FIGURE_FORMATS, FIGURES, LAYERED, PRESETS, checked_layer
from focus_explorer.exports.mask import MASK, checked_head, num_queries
from focus_explorer.exports.mask import SUFFIXES as MASK_SUFFIXES
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import FORMATS, SUFFIXES
from focus_explorer.settings import default_database
from focus_explorer.usecases.runs import check_run
from focus_explorer.usecases.service import Service
from focus_explorer.web.parameters import Request, layer_of, one_of, run_of, whole_number

KINDS = ("table", "mask", "figure", "bundle", "report")
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
        layer: of a mask, a figure or a table's rows, None for all.
        head: of a mask, where the heads of the layer differ; else None.
        rows: of a mask, first and one past the last query; None for all.
        text: whether a bundle includes the text.
    """

    kind: str
    run_id: str
    name: str = ""
    format: str = ""
    preset: str = ""
    layer: int | None = None
    head: int | None = None
    rows: tuple[int, int] | None = None
    text: bool = False

    @property
    def file_name(self) -> str:
        """Made of checked names only."""
        layer = "" if self.layer is None else f"-layer{self.layer}"
        if self.kind == "bundle":
            return f"{self.run_id}-bundle{'-with-text' if self.text else ''}.zip"
        if self.kind == "report":
            return f"{self.run_id}-report.{self.format}"
        if self.kind == "mask":
            head = "" if self.head is None else f"-head{self.head}"
            rows = "" if self.rows is None else f"-rows{self.rows[0]}-{self.rows[1]}"
            return f"{self.run_id}-mask{layer}{head}{rows}{MASK_SUFFIXES[self.format]}"
        suffix = SUFFIXES[self.format] if self.kind == "table" else f".{self.format}"
        return f"{self.run_id}-{self.name}{layer}{suffix}"

    def command(self, database: Path) -> str:
        """The command that writes the same bytes."""
        layer = [] if self.layer is None else ["--layer", str(self.layer)]
        head = [] if self.head is None else ["--head", str(self.head)]
        rows = [] if self.rows is None else ["--rows", f"{self.rows[0]}:{self.rows[1]}"]
        words = {
            "mask": ["export", self.run_id, "--what", MASK, "--format", self.format, *layer, *head, *rows],
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
    """The file a request names, checked: run, kind; name, format, preset, layer, head, first, last, text.

    Raises:
        InputError: there is no such run, table, figure, format, preset, layer, head or query, or the heads of a mask's
            layer differ and none is named.
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
    if kind == "mask":
        layer = checked_layer(service.database, run_id, layer_of(request))
        return ExportRequest(
            kind=kind,
            run_id=run_id,
            format=one_of(request, "format", MASK_SUFFIXES),
            layer=layer,
            head=checked_head(service.database, run_id, layer, _head(request)),
            rows=_queries(request, num_queries(service.database, run_id)),
        )
    if kind == "figure":
        name, form = one_of(request, "name", FIGURES), one_of(request, "format", FIGURE_FORMATS)
        one = checked_layer(service.database, run_id, _layer(service, run_id, request)) if name in LAYERED else None
        preset = one_of(request, "preset", PRESETS)
        return ExportRequest(kind=kind, run_id=run_id, name=name, format=form, preset=preset, layer=one)
    raise InputError(f"there is no export {kind!r}", expected=" or ".join(KINDS))


def _queries(request: Request, total: int) -> tuple[int, int] | None:
    """First and one past the last query, as `first` and `last` give them in words; None for the whole text.

    Raises:
        InputError: one is no token of the text, or they are in the wrong order.
    """
    ends = []
    for name in ("first", "last"):
        words = str(request.get(name, "")).strip()
        if not (words.isascii() and words.isdigit() and int(words) < total):
            given = repr(words) if words else "empty"
            raise InputError(f"the {name} query is {given}", expected=f"a token's number, 0 to {total - 1}")
        ends.append(int(words))
    first, last = ends
    if first > last:
        raise InputError(f"the first query, {first}, comes after the last, {last}", fix="exchange them")
    return None if (first, last) == (0, total - 1) else (first, last + 1)


def _head(request: Request) -> int | None:
    return None if request.get("head") is None else whole_number(request, "head")


def _layer(service: Service, run_id: str, request: Request) -> int | None:
    if request.get("layer") is None:
        return None
    return checked_layer(service.database, run_id, layer_of(request))
