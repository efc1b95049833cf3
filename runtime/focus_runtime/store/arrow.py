"""Arrow tables into DuckDB tables; what every writer of the store shares."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def insert(connection: Any, table: str, rows: pa.Table) -> None:
    """Append rows by the names of their columns, within the connection's transaction.

    Args:
        connection: open for writing.
        table: its name.
        rows: with the table's column names.
    """
    connection.register("incoming", rows)
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


def constant(value: Any, count: int, kind: pa.DataType | None = None) -> pa.Array:
    """A column of equal values.

    Args:
        value: of every row.
        count: rows.
        kind: the column's type; that of the value when None.
    """
    return pa.repeat(pa.scalar(value, type=kind), count)
