"""Uploaded centroid files -> rows."""

from __future__ import annotations

import json

from focus_runtime.routing.centroids import Centroids
from focus_runtime.store.database import Database


def register_centroids(
    database: Database, centroids: Centroids, report: list[str], path: str, *, owner: str | None = None
) -> None:
    """Remember a validated centroid file; the same file again only renews name, time, report and owner.

    Args:
        database: the store.
        centroids: as they were read.
        report: readable lines of the validation.
        path: where the copy is kept.
        owner: user it belongs to; None where there are no users.
    """
    values = {
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
    }
    columns = ", ".join(values)
    places = ", ".join(f"${name}" for name in values)
    with database.write() as connection:
        connection.execute(
            f"INSERT OR REPLACE INTO centroid_files ({columns}, uploaded_at) VALUES ({places}, now())", values
        )


def rename_centroids(database: Database, sha256: str, name: str) -> None:
    """Give a registered file another name."""
    with database.write() as connection:
        connection.execute("UPDATE centroid_files SET name = ? WHERE sha256 = ?", [name, sha256])


def forget_centroids(database: Database, sha256: str) -> None:
    """Remove the row of a registered file; the file itself stays."""
    with database.write() as connection:
        connection.execute("DELETE FROM centroid_files WHERE sha256 = ?", [sha256])
