"""Requests of the export dialog: tables, figures, bundles and reports of a run."""

from __future__ import annotations

from pathlib import Path

from focus_explorer.exports.figures.write import FIGURE_FORMATS, FIGURES, LAYERED, PRESETS
from focus_explorer.exports.mask.choices import kept_by_layer, num_queries, pairs_by_part
from focus_explorer.exports.mask.names import SUFFIXES as MASK_SUFFIXES
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import FORMATS
from focus_explorer.usecases.runs import run_title
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import acting_user
from focus_explorer.views.payloads.exports import (
    ExportChoicesPayload,
    ExportCommandPayload,
    ExportPayload,
    MaskChoicesPayload,
)
from focus_explorer.views.run import part_payload
from focus_explorer.web.downloads.files import Downloads
from focus_explorer.web.downloads.request import KINDS, REPORT_FORMATS, read_request
from focus_explorer.web.parameters import Request, run_of

WITHOUT_LAYERS = ("tokens", "losses", "predictions", "timings", "timing_repeats", "comparisons")


def choices(service: Service, request: Request) -> ExportChoicesPayload:
    """The exports there are of a run: run."""
    return {
        "title": run_title(service.database, run_of(request)),
        "kinds": list(KINDS),
        "tables": [
            {"name": name, "about": about, "layers": name not in WITHOUT_LAYERS} for name, about in TABLES.items()
        ],
        "formats": list(FORMATS),
        "mask": _mask(service, run_of(request)),
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


def command(service: Service, request: Request) -> ExportCommandPayload:
    """The command that writes the same file: run, and the file as `read_request` takes it."""
    shown = service.database.path
    if acting_user() is not None:  # folders of the machine are nobody's business who does not own it
        shown = Path(shown.name)
    return {"command": read_request(service, request).command(shown)}


def start(service: Service, request: Request) -> ExportPayload:
    """Make a file: run, and the file as `read_request` takes it."""
    return service.part(Downloads).start(read_request(service, request))


def state(service: Service, request: Request) -> ExportPayload:
    """State of a file: id."""
    return service.part(Downloads).state(str(request.get("id")))


def stop(service: Service, request: Request) -> ExportPayload:
    """Stop making a file: id."""
    return service.part(Downloads).stop(str(request.get("id")))


REQUESTS = {
    "export_choices": choices,
    "export_command": command,
    "export_start": start,
    "export_state": state,
    "export_stop": stop,
}
