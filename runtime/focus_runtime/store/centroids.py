"""Uploaded centroid files -> rows."""

from __future__ import annotations

import json

from focus_runtime.routing.centroids import Centroids
from focus_runtime.store.database import Database


def register_centroids(database: Database, centroids: Centroids, report: list[str], path: str) -> None:
    """Remember a validated centroid file; the same file again only renews name, time and report.

    Args:
        database: the store.
        centroids: as they were read.
        report: readable lines of the validation.
        path: where the copy is kept.
    """
    with database.write() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO centroid_files VALUES (?, ?, now(), ?, ?, ?, ?, ?, ?, ?)",
            [
                centroids.sha256,
                centroids.name,
                centroids.config.to_json(),
                centroids.base_model,
                centroids.config.num_groups,
                centroids.config.routing_dim,
                len(centroids.routers),
                json.dumps(report),
                path,
            ],
        )
