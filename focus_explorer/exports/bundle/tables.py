"""Which tables go into a bundle in which formats, and which are left out without the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow.parquet

from focus_explorer.errors import InputError
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import SUFFIXES, write_table
from focus_runtime.store.database import Database

# With the model, a token can be recovered from its loss, from its groups in all layers, or from a list of ids; so
# without the text no table has rows by place in the text.
BY_PLACE = (
    "tokens",
    "assignments",
    "head_assignments",
    "losses",
    "masks",
    "links",
    "pairs",
    "missing_links",
    "predictions",
)
PLACES = frozenset(
    {"position", "token", "token_id", "start_char", "end_char", "query", "key", "row_block", "col_block"}
)
DATA_ONLY = (
    "assignments",
    "head_assignments",
    "losses",
    "masks",
    "predictions",
)  # for programs; too many rows for a spreadsheet
FORMATS_FOR_READING = ("csv", "json", "latex", "markdown")
NOT_WITHOUT_TEXT = "its rows stand in the order of the text, which is not included"
NO_ROWS = {"head_assignments": "it has no rows: all heads have the groups of assignments"}
NOTHING_MEASURED = "it has no rows: this was not measured for the run"

Progress = Callable[[str, float], None]


def share(progress: Progress, number: int, count: int) -> Progress:
    """The progress of one of `count` equal parts, as part of the whole.

    Args:
        progress: of the whole.
        number: of the part, from 0.
        count: of the parts.
    """
    return lambda stage, fraction: progress(stage, (number + fraction) / count)


def files_of(run_id: str, what: str) -> list[tuple[str, str]]:
    """(format, path within the bundle) of every file of a table."""
    files = [("parquet", f"data/{run_id}/{what}.parquet")]
    formats = () if what in DATA_ONLY else ("csv",) if what == "tokens" else FORMATS_FOR_READING
    return files + [(name, f"tables/{run_id}/{what}{SUFFIXES[name]}") for name in formats]


def write_tables(
    database: Database,
    run_id: str,
    folder: Path,
    *,
    with_text: bool,
    only: Iterable[str] | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> tuple[list[str], dict[str, str]]:
    """Write a run's tables below a folder.

    Args:
        database: has the run.
        run_id: its id.
        folder: of the bundle's files.
        with_text: also the tables whose rows have a place in the text.
        only: names of tables; all of them when None.
        progress: receives the stage and the part done, 0 to 1, before each table.

    Returns:
        Names of the tables written, and of those left out with the reason.
    """
    written, left_out = [], {}
    tables = list(TABLES if only is None else only)
    for number, what in enumerate(tables):
        if what in BY_PLACE and not with_text:
            left_out[what] = NOT_WITHOUT_TEXT
            continue
        progress(f"Table {what}", 0.1 + 0.8 * number / len(tables))
        try:
            with database.read():  # keeps the file open: opening it for every query takes longer than most queries
                problem = _write(database, run_id, what, folder, with_text=with_text)
        except InputError as error:
            problem = str(error)
        if problem:
            left_out[what] = problem
        else:
            written.append(what)
    return written, left_out


def _write(database: Database, run_id: str, what: str, folder: Path, *, with_text: bool) -> str:
    """Write one table; returns why it was left out, or ""."""
    for file_format, path in files_of(run_id, what):
        target = write_table(database, run_id, what, file_format, folder / path)
        if file_format == "parquet":  # the first one
            stored = pyarrow.parquet.ParquetFile(target)
            assert with_text or not PLACES & set(stored.schema_arrow.names), f"{what} has rows by place"
            if not stored.metadata.num_rows:
                target.unlink()
                return NO_ROWS.get(what, NOTHING_MEASURED)
    return ""
