"""Named read-only SQL -> Arrow. Screen, command line and exports use these alone, so they cannot disagree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from focus_explorer.data.named_sql import QUERIES
from focus_explorer.errors import DeletedRunError, NotFoundError
from focus_runtime.store.database import Database


def fetch(database: Database, name: str, **parameters: Any) -> pa.Table:
    """Run one named query."""
    with database.read() as connection:
        return connection.sql(QUERIES[name], params=parameters or None).to_arrow_table()


def fetch_several(database: Database, names: tuple[str, ...], **parameters: Any) -> dict[str, pa.Table]:
    """Run named queries with the same parameters on one connection: opening a file takes longer than most reads."""
    with database.read() as connection:
        return {name: connection.sql(QUERIES[name], params=parameters).to_arrow_table() for name in names}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dictionaries, as `to_pylist` gives them; that imports pandas where a column has times with a zone."""
    columns = [
        _times(table[field.name]) if _has_zone(field.type) else table[field.name].to_pylist() for field in table.schema
    ]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _has_zone(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None and kind.unit == "us"


def _times(column: pa.ChunkedArray) -> list[datetime | None]:
    zone, first = ZoneInfo(column.type.tz), datetime(1970, 1, 1, tzinfo=UTC)
    counts = column.cast(pa.int64()).to_pylist()
    return [None if count is None else (first + timedelta(microseconds=count)).astimezone(zone) for count in counts]


def fetch_training(database: Database, training_id: str) -> dict[str, Any]:
    """The one row of a training.

    Raises:
        NotFoundError: there is no such training.
    """
    rows = fetch(database, "training", training_id=training_id).to_pylist()
    if not rows:
        raise NotFoundError(f"there is no training {training_id!r} in {database.path.name}", fix="reload the page")
    return rows[0]


def fetch_run(database: Database, run_id: str) -> dict[str, Any]:
    """The one row of a run."""
    return only_run(database, run_id, fetch(database, "run", run_id=run_id))


def only_run(database: Database, run_id: str, rows: pa.Table) -> dict[str, Any]:
    """The one row of the query `run`.

    Raises:
        NotFoundError: it has none.
        DeletedRunError: the run was deleted.
    """
    if not rows.num_rows:
        raise NotFoundError(
            f"there is no run {run_id!r} in {database.path.name}", fix="`focus-explorer runs` lists the ones there are"
        )
    run = rows_of(rows)[0]
    if run["deleted_at"] is not None:
        raise DeletedRunError(
            f"the run {run_id} was deleted", fix=f"bring it back with `focus-explorer runs undelete {run_id}`"
        )
    return run
