"""A copy of a database as it was before its schema is changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from focus_runtime.files import replacing


def back_up_before_migrating(connection: Any, path: str | os.PathLike[str], version: str) -> None:
    """Copy all tables of an open database into `PATH.before-VERSION`, which is there whole or not at all.

    DuckDB itself copies: a file that this process closes would lose the lock that its connection holds on it.

    Args:
        connection: of the database, outside a transaction.
        path: of the database.
        version: name of the first migration that it lacks; a copy of that name is replaced.

    Raises:
        InputError: the copy cannot be written.
        duckdb.Error: the database cannot be read, or the disk is full.
    """
    with replacing(f"{os.fspath(path)}.before-{version}", sync=True) as part:
        copy_database(connection, part)


def copy_database(connection: Any, part: Path) -> None:
    """Copy all tables of an open database into a new file.

    Args:
        connection: of the database, outside a transaction; it may be read-only.
        part: empty file of `replacing`, which becomes the copy.

    Raises:
        duckdb.Error: the database cannot be read, or the disk is full.
    """
    name = connection.execute("SELECT current_database()").fetchone()[0].replace('"', '""')
    part.unlink()  # an empty file is no database
    connection.execute(f"ATTACH {sql_string(part)} AS copy_of_database (READ_WRITE)")
    try:
        connection.execute(f'COPY FROM DATABASE "{name}" TO copy_of_database')
        connection.execute("CHECKPOINT copy_of_database")
    finally:
        connection.execute("DETACH copy_of_database")


def sql_string(path: str | os.PathLike[str]) -> str:
    """A path as a string of SQL, for statements that take no parameters."""
    return "'" + os.fspath(path).replace("'", "''") + "'"
