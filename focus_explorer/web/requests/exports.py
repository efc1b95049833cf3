"""Requests of the export dialog: tables, figures, bundles and reports of a run."""

from __future__ import annotations

from pathlib import Path

from focus_explorer.exports.kinds import export_choices, read_request
from focus_explorer.usecases.acting_user import acting_user
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.runs import ExportChoicesPayload, ExportCommandPayload, ExportPayload
from focus_explorer.web.downloads import Downloads
from focus_explorer.web.parameters import Request, run_of


def choices(service: Service, request: Request) -> ExportChoicesPayload:
    """The exports there are of a run: run."""
    return export_choices(service, run_of(request))


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
