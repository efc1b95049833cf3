"""Requests of the export dialog: tables, figures, bundles and reports of a run."""

from __future__ import annotations

from pathlib import Path

from focus_explorer.exports.figures.write import FIGURE_FORMATS, FIGURES, LAYERED, PRESETS
from focus_explorer.exports.mask.choices import kept_by_layer, num_queries, pairs_by_part
from focus_explorer.exports.mask.names import SUFFIXES as MASK_SUFFIXES
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import FORMATS
from focus_explorer.usecases.acting_user import acting_user
from focus_explorer.usecases.request import Payload, Request
from focus_explorer.usecases.runs import run_title
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.exports import (
    ExportChoicesPayload,
    MaskChoicesPayload,
)
from focus_explorer.views.run import part_payload
from focus_explorer.web.downloads.files import Downloads
from focus_explorer.web.downloads.request import KINDS, REPORT_FORMATS, ExportRequest, read_request

WITHOUT_LAYERS = ("tokens", "losses", "predictions", "timings", "timing_repeats", "comparisons")


def choices(service: Service, run_id: str) -> ExportChoicesPayload:
    """The exports there are of a run."""
    return {
        "title": run_title(service.database, run_id),
        "kinds": list(KINDS),
        "tables": [
            {"name": name, "about": about, "layers": name not in WITHOUT_LAYERS} for name, about in TABLES.items()
        ],
        "formats": list(FORMATS),
        "mask": _mask(service, run_id),
        "figures": [{"name": name, "about": about, "layers": name in LAYERED} for name, about in FIGURES.items()],
        "figure_formats": list(FIGURE_FORMATS),
        "report_formats": list(REPORT_FORMATS),
        "presets": [
            {"name": name, "about": preset.about, "width": preset.width, "height": preset.height}
            for name, preset in PRESETS.items()
        ],
    }


def _mask(service: Service, run_id: str) -> MaskChoicesPayload:
    parts = pairs_by_part(service.database, run_id)
    return {
        "formats": list(MASK_SUFFIXES),
        "layers": [
            {"layer": layer, "pairs": pairs, "parts": [part_payload(one) for one in parts[layer]]}
            for layer, pairs in kept_by_layer(service.database, run_id).items()
        ],
        "tokens": num_queries(service.database, run_id),
    }


class FileRequest(Request):
    """A file of a run, which `read_request` checks; `first` and `last` are queries of a mask, as they were typed."""

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


def _file(service: Service, request: FileRequest) -> ExportRequest:
    return read_request(service, {"run": request.run_id, **request.model_dump()})


def command(service: Service, request: FileRequest) -> Payload:
    """The command that writes the same file."""
    shown = service.database.path
    if acting_user() is not None:  # folders of the machine are nobody's business who does not own it
        shown = Path(shown.name)
    return {"command": _file(service, request).command(shown)}


def start(service: Service, request: FileRequest) -> Payload:
    """Make a file."""
    return service.part(Downloads).start(_file(service, request))


def state(service: Service, id: str) -> Payload:
    """State of a file."""
    return service.part(Downloads).state(id)


def stop(service: Service, id: str) -> Payload:
    """Stop making a file."""
    return service.part(Downloads).stop(id)
