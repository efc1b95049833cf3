"""Measured comparisons of a run with other settings."""

from __future__ import annotations

from typing import Any

from focus_runtime.store.database import Database


def write_setting(database: Database, row: dict[str, Any]) -> None:
    """Keep one measured setting of a run; measuring it again replaces it.

    Args:
        row: every column of `comparisons` but `measured_at`.
    """
    _replace(database, "comparisons", row, ("run_id", "kind", "top_k", "window_size"))


def write_length(database: Database, row: dict[str, Any]) -> None:
    """Keep one measured length of a run's layer; measuring it again replaces it.

    Args:
        row: every column of `crossovers` but `measured_at`.
    """
    _replace(database, "crossovers", row, ("run_id", "layer", "tokens"))


def _replace(database: Database, table: str, row: dict[str, Any], key: tuple[str, ...]) -> None:
    same = " AND ".join(f"{name} = ?" for name in key)
    marks = ", ".join("?" for _ in row)
    with database.write() as connection:
        connection.execute(f"DELETE FROM {table} WHERE {same}", [row[name] for name in key])
        connection.execute(
            f"INSERT INTO {table} ({', '.join(row)}, measured_at) VALUES ({marks}, now())", list(row.values())
        )
