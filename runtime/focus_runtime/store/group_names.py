"""Names that people gave groups; they belong to a centroid file, so every run with that file has them."""

from __future__ import annotations

from focus_runtime.store.database import Database


def write_group_name(database: Database, sha256: str, layer: int, group: int, name: str) -> None:
    """Store a name; an empty one removes it.

    Args:
        database: the store.
        sha256: of the centroid file.
        layer: layer number.
        group: number of the group, from 0.
        name: what people call it.
    """
    key = [sha256, layer, group]
    with database.write() as connection:
        connection.execute("DELETE FROM group_names WHERE centroids_sha256 = ? AND layer = ? AND group_index = ?", key)
        if name:
            connection.execute("INSERT INTO group_names VALUES (?, ?, ?, ?, now())", [*key, name])
