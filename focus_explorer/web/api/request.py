"""Requests of the page, for programs."""

from __future__ import annotations

from typing import Any

from focus_explorer.usecases.runs import check_run, run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import old_text_note
from focus_explorer.web.requests.dispatch import dispatch


def ask(service: Service, what: str, run_id: str, **parameters: Any) -> dict[str, Any]:
    """The page's answer to a request about a run.

    Args:
        service: database and model.
        what: name of the request.
        run_id: of the run.
        parameters: of the request.

    Raises:
        InputError: there is no such run, or the parameters make no sense.
    """
    check_run(service.database, run_id)
    return dict(dispatch(service, {"what": what, "run": run_id, **parameters}))


def shown_summary(service: Service, run_id: str) -> dict[str, Any]:
    """The numbers of one run; of the database only the name of its file, for folders are nobody's business.

    Args:
        service: database.
        run_id: of the run.

    Raises:
        InputError: there is no such run.
    """
    summary = run_summary(service.database, run_id)
    note = old_text_note(service, summary["model"], summary["special_tokens"])
    notes = summary["notes"] if note is None else [note, *summary["notes"]]
    return {**summary, "notes": notes, "db": service.database.path.name}
