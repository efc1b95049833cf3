"""Requests about stored runs and centroid files: a token's attention, live text; lists, tables, labels, SQL."""

from __future__ import annotations

from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.exports.tables.write import table
from focus_explorer.usecases import labels, sql
from focus_explorer.usecases.centroids import copies
from focus_explorer.usecases.centroids.cards import CentroidCards
from focus_explorer.usecases.generate import LiveTexts
from focus_explorer.usecases.request import Payload
from focus_explorer.usecases.runs import list_runs, prediction_rows, run_summary, token_rows
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import old_text_note


def live_groups(service: Service, run_id: str, text: str = "", session: str = "") -> Payload:
    """Groups of a text that is being typed."""
    if service.names is not None:
        service.names.text(text)
    return service.part(LiveTexts).read(run_id, text, session)


def runs(service: Service) -> list[Any]:
    """List the stored runs, newest first, with perplexities, pairs kept, names and tags."""
    return [_plain(row) for row in list_runs(service.database)]


def run(service: Service, run_id: str) -> dict[str, Any]:
    """The numbers of one run."""
    summary = run_summary(service.database, run_id)
    note = old_text_note(service, summary["model"], summary["special_tokens"])
    notes = summary["notes"] if note is None else [note, *summary["notes"]]
    # Of the database only the name of its file: a program need not know the folders of this machine.
    return {**summary, "notes": notes, "db": service.database.path.name}


def groups(service: Service, run_id: str) -> list[Any]:
    """Every group of every layer of a run: share of tokens, confidence, most frequent tokens."""
    return [_plain(row) for row in table(service.database, run_id, "groups").to_pylist()]


def layers(service: Service, run_id: str) -> list[Any]:
    """Every layer of a run: largest group, pairs kept and pairs by cause."""
    return [_plain(row) for row in table(service.database, run_id, "layers").to_pylist()]


def tokens(service: Service, run_id: str, first: int = 0, count: int = 500) -> list[Any]:
    """Tokens of a run with their losses and their groups in every layer.

    Args:
        count: number of tokens, at most 5000.
    """
    return [_plain(row) for row in token_rows(service.database, run_id, first, count)]


def predictions(service: Service, run_id: str, first: int = 0, count: int = 500) -> list[Any]:
    """The five most probable tokens at every place under full attention and under Focus, with probabilities.

    Args:
        count: number of tokens, at most 5000.

    Returns:
        For each token and mode (full, focus): position, rank of the real token (from 1), pieces and probabilities,
        most probable first; empty for a run stored before 0.2.
    """
    return [_plain(row) for row in prediction_rows(service.database, run_id, first, count)]


def run_sql(service: Service, query: str) -> dict[str, Any]:
    """Answer one SELECT statement (DuckDB) over the database; read-only, at most 10 seconds and 1000 rows."""
    return dict(sql.run_sql(service.database, query))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON-ready values: times as text."""
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in row.items()}


def rename(service: Service, run_id: str, name: str) -> dict[str, Any]:
    """Give a run a name; an empty one removes it.

    Args:
        name: at most 120 characters.
    """
    return dict(labels.label_run(service, run_id, name=name))


def note(service: Service, run_id: str, note: str) -> dict[str, Any]:
    """Write a note to a run; an empty one removes it.

    Args:
        note: at most 4000 characters.
    """
    return dict(labels.label_run(service, run_id, note=note))


def tag(service: Service, run_id: str, add: str = "", remove: str = "") -> dict[str, Any]:
    """Add and remove tags of a run."""
    return dict(labels.change_tags(service, run_id, add.split(","), remove.split(",")))


def delete(service: Service, run_id: str) -> dict[str, Any]:
    """Hide a run at once; it is removed for good 30 days later, and undelete brings it back until then."""
    labels.delete_run(service, run_id)
    return {"run_id": run_id, "deleted": True}


def undelete(service: Service, run_id: str) -> dict[str, Any]:
    """Bring a deleted run back."""
    labels.undelete_run(service, run_id)
    return {"run_id": run_id, "deleted": False}


def centroids(service: Service) -> list[Any]:
    """List the shipped and uploaded centroid files with how they were trained and their held-out results."""
    return service.part(CentroidCards).cards()


def compare_centroids(service: Service, first: str, second: str) -> dict[str, Any]:
    """What changed between two centroid files: settings, and the distance of matched groups in every layer.

    Args:
        first: sha256 of a file, as listed by centroids.
    """
    return dict(service.part(CentroidCards).compare(first, second))


def measured_budgets(service: Service, file: str) -> dict[str, Any]:
    """The budgets that focus-explorer tune measured for a centroid file, with the held-out results of its own one.

    Args:
        file: sha256 of the file, as listed by centroids.
    """
    detail = service.part(CentroidCards).detail(file)
    if detail["budgets"] is None:
        raise InputError(f"{detail['name']} holds no measured budgets")
    return dict(detail["budgets"])


def use_budget(service: Service, file: str, point: int) -> dict[str, Any]:
    """Keep a copy of a centroid file with another of its measured budgets; the same point gives the same copy.

    Args:
        file: sha256 of the file, as listed by centroids.
        point: number of the budget among the points that budgets lists, from 0.
    """
    return dict(copies.use_budget(service, file, point))
