"""Every table of the database with its columns and their types, as a new database has them."""

from __future__ import annotations

import tempfile
from itertools import groupby
from pathlib import Path

from focus_runtime.store.database import Database

_QUERY = """
    SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns
    ORDER BY table_name, ordinal_position
"""


def columns() -> str:
    """Markdown: one row a table, its columns with types; a `?` stands after a type that may be NULL."""
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "new.duckdb").read() as connection:
        rows = connection.execute(_QUERY).fetchall()
    lines = ["| table | columns |", "|---|---|"]
    for table, found in groupby(rows, key=lambda row: row[0]):
        written = ", ".join(f"`{name} {kind}{'?' * (nullable == 'YES')}`" for _, name, kind, nullable in found)
        lines.append(f"| `{table}` | {written} |")
    return "\n".join(lines)
