"""The register of corpora: what each was made of and with; its rows lie in Parquet files, see run/folder.py."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from focus_runtime.store.database import Database
from focus_runtime.store.runs import insert, new_id

# what makes two commands the same corpus; where and how fast it is worked on does not
IDENTITY = ("source", "folder", "model_fingerprint", "centroids_sha256", "config", "settings")
RUNNING, COMPLETE = "running", "complete"
_TEXTS = ("config", "settings", "versions", "skipped")


def find_corpus(database: Database, values: dict[str, Any]) -> dict[str, Any]:
    """The newest corpus of the same source, settings, model and centroids; a new one where none is.

    `values` are the columns that a command decides; config, settings and versions as objects. A name of "" means that
    of the source.
    """
    row = values | {name: json.dumps(values[name], sort_keys=True) for name in ("config", "settings", "versions")}
    where = " AND ".join(f"{name} = ?" for name in IDENTITY)
    with database.write() as connection:
        known = connection.execute(
            f"SELECT corpus_id FROM corpora WHERE {where} ORDER BY created_at DESC", [row[name] for name in IDENTITY]
        ).fetchone()
        if known is None:
            corpus_id = new_id()
            row |= {"corpus_id": corpus_id, "created_at": datetime.now(UTC), "status": RUNNING}
            row |= {"documents": 0, "skipped": "[]", "name": row["name"] or Path(row["source"]).name}
            insert(connection, "corpora", [row])
        else:
            corpus_id = str(known[0])
    stored = corpus_row(database, corpus_id)
    assert stored is not None, "it was read or written just now"
    return stored


def resume_corpus(database: Database, corpus_id: str, values: dict[str, Any]) -> None:
    """Mark a corpus as running and record what works on it; a name of "" keeps the recorded one."""
    with database.write() as connection:
        connection.execute(
            "UPDATE corpora SET status = ?, name = coalesce(nullif(?, ''), name), versions = ?, command = ? "
            "WHERE corpus_id = ?",
            [RUNNING, values["name"], json.dumps(values["versions"], sort_keys=True), values["command"], corpus_id],
        )


def close_corpus(
    database: Database, corpus_id: str, *, documents: int, skipped: list[dict[str, str]], complete: bool
) -> None:
    """Record how much of a corpus is done, with name, kind and reason of each document that was skipped."""
    with database.write() as connection:
        connection.execute(
            "UPDATE corpora SET documents = ?, skipped = ?, status = ? WHERE corpus_id = ?",
            [documents, json.dumps(skipped, ensure_ascii=False), COMPLETE if complete else RUNNING, corpus_id],
        )


def forget_corpus(database: Database, corpus_id: str) -> None:
    """Take a corpus out of the register; its files stay."""
    with database.write() as connection:
        connection.execute("DELETE FROM corpora WHERE corpus_id = ?", [corpus_id])


def corpora(database: Database) -> list[dict[str, Any]]:
    """Every registered corpus, newest first; config, settings, versions and skipped as objects."""
    with database.read() as connection:
        found = connection.execute("SELECT * FROM corpora ORDER BY created_at DESC, corpus_id")
        names = [column[0] for column in found.description]
        records = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return [row | {name: json.loads(row[name]) for name in _TEXTS} for row in records]


def corpus_row(database: Database, corpus_id: str) -> dict[str, Any] | None:
    """The record of one corpus; None for anything else, such as a run."""
    return next((row for row in corpora(database) if row["corpus_id"] == corpus_id), None)
