"""Labels of runs (name, note, tags), and their deletion: hidden first, removed later."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from focus_runtime.store.database import Database

_TABLES_OF_RUNS = """
SELECT table_name FROM information_schema.columns JOIN information_schema.tables t USING (table_name)
WHERE column_name = 'run_id' AND t.table_type = 'BASE TABLE' AND table_name <> 'runs'
"""


def write_label(
    database: Database,
    run_id: str,
    *,
    name: str | None = None,
    note: str | None = None,
    tags: Sequence[str] | None = None,
    deleted: bool | None = None,
) -> bool:
    """Change what is given and keep the rest.

    Args:
        database: the store.
        run_id: which run.
        name, note, tags: the new values; None keeps the stored one.
        deleted: whether the run is hidden; None keeps it as it is.

    Returns:
        False when there is no such run; nothing is written then.
    """
    with database.write() as connection:
        if not connection.execute("SELECT 1 FROM runs WHERE run_id = ?", [run_id]).fetchall():
            return False
        stored = connection.execute(
            "SELECT name, note, tags, deleted_at FROM run_labels WHERE run_id = ?", [run_id]
        ).fetchall()
        old = stored[0] if stored else ("", "", [], None)
        kept = [new if new is not None else before for new, before in zip((name, note, tags), old[:3], strict=True)]
        row = [run_id, kept[0], kept[1], list(kept[2])]
        if deleted is None:
            connection.execute("INSERT OR REPLACE INTO run_labels VALUES (?, ?, ?, ?, ?)", [*row, old[3]])
        else:
            moment = "now()" if deleted else "NULL"
            connection.execute(f"INSERT OR REPLACE INTO run_labels VALUES (?, ?, ?, ?, {moment})", row)
    return True


def purge_runs(database: Database, *, days: float) -> list[str]:
    """Remove every row of the runs deleted at least `days` ago, in one transaction; their space is used again.

    Returns:
        Ids of the runs that are gone.
    """
    with database.write() as connection:
        rows = connection.execute(
            "SELECT run_id FROM run_labels WHERE deleted_at <= now() - to_seconds(?)", [days * 86400.0]
        ).fetchall()
        run_ids = [row[0] for row in rows]
        if run_ids:
            _remove(connection, run_ids)
    return run_ids


def _remove(connection: duckdb.DuckDBPyConnection, run_ids: list[str]) -> None:
    connection.execute(
        "DELETE FROM projections WHERE projection_id IN "
        "(SELECT projection_id FROM projection_meta WHERE list_contains(?, run_id))",
        [run_ids],
    )
    for (table,) in connection.execute(_TABLES_OF_RUNS).fetchall():
        connection.execute(f'DELETE FROM "{table}" WHERE list_contains(?, run_id)', [run_ids])
    connection.execute("DELETE FROM runs WHERE list_contains(?, run_id)", [run_ids])
