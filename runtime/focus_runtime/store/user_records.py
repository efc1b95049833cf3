"""What users gave: centroid files, names of groups, and names, notes and tags of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from focus_runtime.store.database import Database
from focus_runtime.store.runs import insert

if TYPE_CHECKING:
    from focus_runtime.routing.centroids import Centroids


def register_centroids(
    database: Database, centroids: Centroids, report: list[str], path: str, *, owner: str | None = None
) -> None:
    """Remember a validated centroid file, whose copy is at `path`; None is the owner where there are no users.

    The same file again only renews name, time, report and owner.
    """
    row = {
        "sha256": centroids.sha256,
        "name": centroids.name,
        "config": centroids.config.to_json(),
        "base_model": centroids.base_model,
        "num_groups": centroids.config.num_groups,
        "routing_dim": centroids.config.routing_dim,
        "layers": len(centroids.routers),
        "report": json.dumps(report),
        "path": path,
        "owner": owner,
        "uploaded_at": datetime.now(UTC),
    }
    with database.write() as connection:
        insert(connection, "centroid_files", [row], or_replace=True)


def rename_centroids(database: Database, sha256: str, name: str) -> None:
    """Give a registered file another name."""
    with database.write() as connection:
        connection.execute("UPDATE centroid_files SET name = ? WHERE sha256 = ?", [name, sha256])


def forget_centroids(database: Database, sha256: str) -> None:
    """Remove the row of a registered file; the file itself stays."""
    with database.write() as connection:
        connection.execute("DELETE FROM centroid_files WHERE sha256 = ?", [sha256])


def write_group_name(database: Database, sha256: str, layer: int, group: int, name: str) -> None:
    """Store the name of a group, counted from 0; an empty one removes it."""
    key = [sha256, layer, group]
    with database.write() as connection:
        connection.execute("DELETE FROM group_names WHERE centroids_sha256 = ? AND layer = ? AND group_index = ?", key)
        if name:
            connection.execute("INSERT INTO group_names VALUES (?, ?, ?, ?, now())", [*key, name])


_TABLES_OF_RUNS = """
SELECT table_name FROM information_schema.columns JOIN information_schema.tables t USING (table_name)
WHERE column_name = 'run_id' AND t.table_type = 'BASE TABLE'
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
    """Change what is given and keep the rest; False when there is no such run. A deleted run is hidden."""
    with database.write() as connection:
        if not connection.execute("SELECT 1 FROM runs WHERE run_id = ?", [run_id]).fetchall():
            return False
        stored = connection.execute(
            "SELECT name, note, tags, deleted_at FROM run_labels WHERE run_id = ?", [run_id]
        ).fetchall()
        old = stored[0] if stored else ("", "", [], None)
        moment = old[3] if deleted is None else datetime.now(UTC) if deleted else None
        given = (name, note, None if tags is None else list(tags))
        kept = [new if new is not None else before for new, before in zip(given, old[:3], strict=True)]
        connection.execute("INSERT OR REPLACE INTO run_labels VALUES (?, ?, ?, ?, ?)", [run_id, *kept, moment])
    return True


def purge_runs(database: Database, *, days: float) -> list[str]:
    """Remove every row of the runs deleted at least `days` ago; their space is used again. Returns their ids."""
    with database.write() as connection:
        rows = connection.execute(
            "SELECT run_id FROM run_labels WHERE deleted_at <= now() - to_seconds(?)", [days * 86400.0]
        ).fetchall()
        run_ids = [row[0] for row in rows]
        if not run_ids:
            return []
        connection.execute(
            "DELETE FROM projections WHERE projection_id IN "
            "(SELECT projection_id FROM projection_meta WHERE list_contains(?, run_id))",
            [run_ids],
        )
        for (table,) in connection.execute(_TABLES_OF_RUNS).fetchall():
            connection.execute(f'DELETE FROM "{table}" WHERE list_contains(?, run_id)', [run_ids])
    return run_ids
