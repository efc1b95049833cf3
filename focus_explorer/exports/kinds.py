"""The five kinds of export, one class each: what there is of a run, the file's name, its command, its writing.

A new kind is a class below, named in `KINDS`: the page's dialog, its files and its commands follow.
"""

from __future__ import annotations

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from focus_explorer.data.parts import named_part, part_pairs
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.exports.figures.write import FIGURE_FORMATS, FIGURES, LAYERED, PRESETS, checked_layer, write_figure
from focus_explorer.exports.mask import MASK, write_mask
from focus_explorer.exports.mask import SUFFIXES as MASK_SUFFIXES
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import SUFFIXES, write_table
from focus_explorer.progress import Progress
from focus_explorer.settings import default_database
from focus_explorer.usecases.maps import has_map, map_payload
from focus_explorer.usecases.request import Request
from focus_explorer.usecases.runs import check_run, layer_parts, run_title
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.runs import ExportChoicesPayload
from focus_explorer.views.run import part_payload
from focus_runtime.store.corpora import corpus_row

WITHOUT_LAYERS = ("tokens", "losses", "predictions", "timings", "timing_repeats", "comparisons")  # of the tables


class FileRequest(Request):
    """A file of a run as the page names it; `first` and `last` are queries of a mask, as they were typed."""

    run_id: str
    kind: str = ""
    name: str = ""
    format: str = ""
    preset: str = ""
    layer: int | None = None
    head: int | None = None
    first: str = ""
    last: str = ""
    text: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Export(ABC):
    """One file of one run."""

    formats: ClassVar[Mapping[str, str]]  # with the endings of their files
    command_name: ClassVar[str]
    run_id: str
    format: str

    @classmethod
    def choices(cls, service: Service, run_id: str) -> dict[str, Any]:
        """What the dialog offers: a part of `ExportChoicesPayload`."""
        return {}

    @classmethod
    @abstractmethod
    def read(cls, service: Service, asked: FileRequest) -> Self:
        """The file that the page names, checked; an InputError if there is no such file."""

    @property
    @abstractmethod
    def stem(self) -> str:
        """The file's name between the run and the ending, made of checked names only."""

    @abstractmethod
    def options(self) -> dict[str, str | int | bool | None]:
        """What its command is given, besides the run and the output."""

    @abstractmethod
    def write(self, service: Service, out: Path, step: Progress) -> Path:
        """Write the file; `step` may raise Cancelled."""

    @property
    def file_name(self) -> str:
        """Such as RUN-groups-layer3.csv."""
        return f"{self.run_id}-{self.stem}{self.formats[self.format]}"

    @property
    def command_out(self) -> str:
        return self.file_name

    def command(self, database: Path) -> str:
        """The command that writes the same bytes."""
        elsewhere = None if database == default_database() else str(database)
        words = [self.command_name, self.run_id]
        for name, value in (self.options() | {"out": self.command_out, "db": elsewhere}).items():
            if value is not None and value is not False:
                words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        return shlex.join(["focus-explorer", *words])


@dataclass(frozen=True, kw_only=True, slots=True)
class TableExport(Export):
    """A table, or its first `rows`, or those of one layer; `raw`: without apostrophes before formulas in CSV cells."""

    formats = SUFFIXES
    command_name = "export"
    name: str
    layer: int | None = None
    rows: int | None = None
    raw: bool = False

    @classmethod
    def choices(cls, service: Service, run_id: str) -> dict[str, Any]:
        tables = [
            {"name": name, "about": about, "layers": name not in WITHOUT_LAYERS} for name, about in TABLES.items()
        ]
        return {"tables": tables, "formats": list(cls.formats)}

    @classmethod
    def read(cls, service: Service, asked: FileRequest) -> Self:
        name, form = _one_of(asked, "name", TABLES), _one_of(asked, "format", cls.formats)
        if asked.layer is not None:
            checked_layer(service.database, asked.run_id, asked.layer)
        return cls(run_id=asked.run_id, name=name, format=form, layer=asked.layer)

    @property
    def stem(self) -> str:
        return f"{self.name}{_part('layer', self.layer)}"

    def options(self) -> dict[str, str | int | bool | None]:
        return {"what": self.name, "format": self.format, "layer": self.layer}

    def write(self, service: Service, out: Path, step: Progress) -> Path:
        chosen: dict[str, Any] = {"layer": self.layer, "rows": self.rows, "raw": self.raw}
        return write_table(service.database, self.run_id, self.name, self.format, out, **chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskExport(Export):
    """A mask, of one head where those of the layer differ; `rows`: first and one past the last query. None: all."""

    formats = MASK_SUFFIXES
    command_name = "export"
    layer: int
    head: int | None = None
    rows: tuple[int, int] | None = None

    @classmethod
    def choices(cls, service: Service, run_id: str) -> dict[str, Any]:
        """Formats, and layers with the pairs they keep, the mean over heads where they differ, and these heads."""
        run = fetch_run(service.database, run_id)
        parts = part_pairs(json.loads(run["config"]), fetch(service.database, "part_pairs", run_id=run_id))
        layers = [
            {
                "layer": row["layer"],
                "pairs": row["causal_pairs"] - row["dropped"],
                "parts": [part_payload(one) for one in parts[row["layer"]]],
            }
            for row in fetch(service.database, "layers", run_id=run_id).to_pylist()
        ]
        return {"mask": {"formats": list(cls.formats), "layers": layers, "tokens": int(run["num_tokens"])}}

    @classmethod
    def read(cls, service: Service, asked: FileRequest) -> Self:
        run_id, layer, head = asked.run_id, asked.layer, asked.head
        if layer is None:
            raise InputError("the layer is None", expected="a layer number")
        checked_layer(service.database, run_id, layer)
        run = fetch_run(service.database, run_id)
        parts = layer_parts(service.database, run)[layer]
        named_part(parts, layer, head, "choose one of them")
        head, rows = head if len(parts) > 1 else None, _queries(asked, run["num_tokens"])
        return cls(run_id=run_id, format=_one_of(asked, "format", cls.formats), layer=layer, head=head, rows=rows)

    @property
    def stem(self) -> str:
        rows = "" if self.rows is None else f"-rows{self.rows[0]}-{self.rows[1]}"
        return f"{MASK}{_part('layer', self.layer)}{_part('head', self.head)}{rows}"

    def options(self) -> dict[str, str | int | bool | None]:
        rows = None if self.rows is None else f"{self.rows[0]}:{self.rows[1]}"
        return {"what": MASK, "format": self.format, "layer": self.layer, "head": self.head, "rows": rows}

    def write(self, service: Service, out: Path, step: Progress) -> Path:
        chosen: dict[str, Any] = {"rows": self.rows, "head": self.head, "progress": step}
        return write_mask(service.database, self.run_id, self.layer, self.format, out, **chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureExport(Export):
    """A figure; `layer` and `head` of those that show one."""

    formats: ClassVar[Mapping[str, str]] = {name: f".{name}" for name in FIGURE_FORMATS}
    command_name = "figure"
    name: str
    preset: str
    layer: int | None = None
    head: int | None = None

    @classmethod
    def choices(cls, service: Service, run_id: str) -> dict[str, Any]:
        presets = [
            {"name": name, "about": preset.about, "width": preset.width, "height": preset.height}
            for name, preset in PRESETS.items()
        ]
        figures = [{"name": name, "about": about, "layers": name in LAYERED} for name, about in FIGURES.items()]
        return {"figures": figures, "figure_formats": list(cls.formats), "presets": presets}

    @classmethod
    def read(cls, service: Service, asked: FileRequest) -> Self:
        name, form = _one_of(asked, "name", FIGURES), _one_of(asked, "format", cls.formats)
        layer = checked_layer(service.database, asked.run_id, asked.layer) if name in LAYERED else None
        return cls(run_id=asked.run_id, name=name, format=form, preset=_one_of(asked, "preset", PRESETS), layer=layer)

    @property
    def stem(self) -> str:
        return f"{self.name}{_part('layer', self.layer)}"

    def options(self) -> dict[str, str | int | bool | None]:
        return {"what": self.name, "format": self.format, "preset": self.preset, "layer": self.layer}

    def write(self, service: Service, out: Path, step: Progress) -> Path:
        """A map is made first where none is stored, and kept; the page does the same when the layer is shown."""
        if self.name == "map" and corpus_row(service.database, self.run_id) is None:
            layer = checked_layer(service.database, self.run_id, self.layer)
            if not has_map(service.database, self.run_id, layer):
                step(f"Making the map of layer {layer}", 0.2)
                map_payload(service, self.run_id, layer)
        step("Drawing", 0.5)
        chosen: dict[str, Any] = {"preset": self.preset, "layer": self.layer, "head": self.head}
        return write_figure(service.database, self.run_id, self.name, self.format, out, **chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleExport(Export):
    """A bundle, with the text or without."""

    formats: ClassVar[Mapping[str, str]] = {"zip": ".zip"}
    command_name = "bundle"
    format: str = "zip"
    text: bool = False

    @classmethod
    def read(cls, service: Service, asked: FileRequest) -> Self:
        return cls(run_id=asked.run_id, text=asked.text)

    @property
    def stem(self) -> str:
        return "bundle-with-text" if self.text else "bundle"

    def options(self) -> dict[str, str | int | bool | None]:
        return {"text": self.text}

    def write(self, service: Service, out: Path, step: Progress) -> Path:
        from focus_explorer.exports.bundle.write import write_bundle

        return write_bundle(service, [self.run_id], out, text=self.text, progress=step)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportExport(Export):
    formats: ClassVar[Mapping[str, str]] = {"html": ".html", "pdf": ".pdf"}
    command_name = "report"

    @classmethod
    def choices(cls, service: Service, run_id: str) -> dict[str, Any]:
        return {"report_formats": list(cls.formats)}

    @classmethod
    def read(cls, service: Service, asked: FileRequest) -> Self:
        return cls(run_id=asked.run_id, format=_one_of(asked, "format", cls.formats))

    @property
    def stem(self) -> str:
        return "report"

    @property
    def command_out(self) -> str:
        """A folder, where the command writes both files."""
        return f"{self.run_id}-report"

    def options(self) -> dict[str, str | int | bool | None]:
        return {"no-pdf": self.format == "html"}

    def write(self, service: Service, out: Path, step: Progress) -> Path:
        from focus_explorer.exports.report.write import write_report

        written = write_report(service, [self.run_id], out.parent, pdf=self.format == "pdf", progress=step)
        made = written.html if self.format == "html" else written.pdf
        if made is None:
            raise InputError(written.note, fix="choose HTML")
        return made.rename(out)


KINDS: dict[str, type[Export]] = {
    "table": TableExport,
    "mask": MaskExport,
    "figure": FigureExport,
    "bundle": BundleExport,
    "report": ReportExport,
}


def export_choices(service: Service, run_id: str) -> ExportChoicesPayload:
    choices: dict[str, Any] = {"title": run_title(service.database, run_id), "kinds": list(KINDS)}
    for kind in KINDS.values():
        choices |= kind.choices(service, run_id)
    return cast(ExportChoicesPayload, choices)


def read_request(service: Service, asked: FileRequest) -> Export:
    """The file that the page names, checked."""
    check_run(service.database, asked.run_id)
    if asked.kind not in KINDS:
        raise InputError(f"there is no export {asked.kind!r}", expected=" or ".join(KINDS))
    return KINDS[asked.kind].read(service, asked)


def _part(name: str, number: int | None) -> str:
    return "" if number is None else f"-{name}{number}"


def _one_of(asked: FileRequest, field: str, known: Iterable[str]) -> str:
    value: str = getattr(asked, field)
    if value not in known:
        raise InputError(f"there is no {field} {value!r}", expected=" or ".join(known))
    return value


def _queries(asked: FileRequest, total: int) -> tuple[int, int] | None:
    """First and one past the last query, as `first` and `last` give them in words. None: the whole text."""
    ends = []
    for name, typed in (("first", asked.first), ("last", asked.last)):
        words = typed.strip()
        if not (words.isascii() and words.isdigit() and int(words) < total):
            given = repr(words) if words else "empty"
            raise InputError(f"the {name} query is {given}", expected=f"a token's number, 0 to {total - 1}")
        ends.append(int(words))
    first, last = ends
    if first > last:
        raise InputError(f"the first query, {first}, comes after the last, {last}", fix="exchange them")
    return None if (first, last) == (0, total - 1) else (first, last + 1)
