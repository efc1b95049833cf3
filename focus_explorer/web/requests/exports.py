"""Requests of the export dialog: tables, figures, bundles and reports of a run."""

from __future__ import annotations

from pathlib import Path

from focus_explorer.exports.kinds import Export, read_request
from focus_explorer.usecases.request import Payload, Request
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import acting_user
from focus_explorer.web.downloads import Downloads


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


def _file(service: Service, request: FileRequest) -> Export:
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
