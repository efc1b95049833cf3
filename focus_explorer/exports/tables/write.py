"""Tables of a run as CSV, JSON, Parquet, LaTeX and Markdown, from the same queries the screen uses.

CSV, JSON and Parquet are written piece by piece, so that millions of rows need little memory. LaTeX and Markdown are
for reading: chosen columns and a limited number of rows.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from focus_explorer.errors import InputError
from focus_explorer.exports.tables.latex import latex_table
from focus_explorer.exports.tables.reading import markdown_table, reading_order
from focus_explorer.exports.tables.sources import BUDGET, read
from focus_runtime.files import replacing
from focus_runtime.store.database import Database

SUFFIXES = {"csv": ".csv", "json": ".json", "parquet": ".parquet", "latex": ".tex", "markdown": ".md"}
FORMATS = tuple(SUFFIXES)
READING_ROWS = 300  # of LaTeX and Markdown; seven pages


def table(database: Database, run_id: str, what: str) -> pa.Table:
    """One of the tables in `sources.TABLE_DESCRIPTIONS`: every row with its run and setting, provenance as metadata."""
    return pa.concat_tables(read(database, run_id, what))


def write_table(
    database: Database,
    run_id: str,
    what: str,
    file_format: str,
    out: str | Path,
    *,
    raw: bool = False,
    rows: int | None = None,
    layer: int | None = None,
) -> Path:
    """Write a table of a run or corpus atomically; nothing half-written stays.

    Args:
        what: one of `sources.TABLES` (of a run) or `sources.CORPUS_TABLES`.
        raw: leave text cells of a CSV file as they are, also where a spreadsheet would run them.
        rows: write at most the first so many; None means all, or `READING_ROWS` of LaTeX and Markdown.
        layer: only the rows of this layer.
    """
    if file_format not in FORMATS:
        raise InputError(f"there is no format {file_format!r}", expected=" or ".join(FORMATS))
    if rows is not None and rows < 1:
        raise InputError(f"rows is {rows}", expected="at least 1")
    target = Path(os.path.expanduser(out))
    pieces = read(database, run_id, what)
    if layer is not None:
        pieces = _only_layer(pieces, run_id, what, layer)
    if file_format in _WRITERS:
        if rows is not None:
            pieces = _first_rows(pieces, rows)
        if file_format != "parquet":  # which stores equal values once
            pieces = _budget_once(pieces)
        if file_format == "csv" and not raw:
            pieces = map(escape_formulas, pieces)
        first = next(pieces)
        with replacing(target) as part:
            _WRITERS[file_format](first.schema, itertools.chain([first], pieces), part)
    else:
        limit = READING_ROWS if rows is None else rows
        shown, total = _beginning((reading_order(piece, what) for piece in pieces), limit)
        text = (latex_table if file_format == "latex" else markdown_table)(shown, what, total)
        with replacing(target) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
    return target


def _only_layer(pieces: Iterator[pa.Table], run_id: str, what: str, layer: int) -> Iterator[pa.Table]:
    is_there = False
    for piece in pieces:
        if "layer" not in piece.column_names:
            raise InputError(f"the table {what} has no layers", fix="leave the layer out")
        chosen = piece.filter(pc.equal(piece["layer"], layer))
        if chosen.num_rows:
            is_there = True
            yield chosen
    if not is_there:
        raise InputError(f"the table {what} of run {run_id} has no layer {layer}", fix="choose a layer of this run")


def _first_rows(pieces: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    left = rows
    for piece in pieces:
        yield piece.slice(0, left)
        left -= piece.num_rows
        if left <= 0:
            return


def _budget_once(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The whole budget in the first row alone; the others have its `budget_id`."""
    left = 1
    for piece in pieces:
        if BUDGET in piece.column_names:
            column = piece[BUDGET].slice(0, left)
            empty = pa.nulls(piece.num_rows - len(column), column.type)
            place = piece.column_names.index(BUDGET)
            piece = piece.set_column(place, BUDGET, pa.chunked_array([*column.chunks, empty], column.type))
            left -= len(column)
        yield piece


def _beginning(pieces: Iterator[pa.Table], rows: int) -> tuple[pa.Table, int]:
    """The first rows, and how many there are in all."""
    kept: list[pa.Table] = []
    held = total = 0
    for piece in pieces:
        if held < rows or not kept:
            kept.append(piece.slice(0, rows - held))
            held += kept[-1].num_rows
        total += piece.num_rows
    return pa.concat_tables(kept), total


def _write_csv(schema: pa.Schema, pieces: Iterator[pa.Table], part: Path) -> None:
    with pyarrow.csv.CSVWriter(part, schema) as writer:
        for piece in pieces:
            writer.write_table(piece)


def _write_parquet(schema: pa.Schema, pieces: Iterator[pa.Table], part: Path) -> None:
    # hardly a float occurs twice, so a dictionary of them costs time and saves nothing
    repeated = [field.name for field in schema if not pa.types.is_floating(field.type)]
    with pyarrow.parquet.ParquetWriter(part, schema, use_dictionary=repeated) as writer:
        for piece in pieces:
            writer.write_table(piece)


def _write_json(schema: pa.Schema, pieces: Iterator[pa.Table], part: Path) -> None:
    """A list with one object a line; numbers that JSON does not have become null."""
    batches = (batch for piece in pieces for batch in piece.to_batches(max_chunksize=10_000))
    with part.open("w", encoding="utf-8", newline="\n") as file:
        file.write("[")
        separator = "\n"
        for row in itertools.chain.from_iterable(batch.to_pylist() for batch in batches):
            file.write(separator + _json(row))
            separator = ",\n"
        file.write("\n]\n")


_WRITERS: dict[str, Callable[[pa.Schema, Iterator[pa.Table], Path], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
}


def _json(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_iso)
    except ValueError:
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        return json.dumps(finite, ensure_ascii=False, default=_iso)


def _iso(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def escape_formulas(rows: pa.Table) -> pa.Table:
    """The table with an apostrophe before every text cell that a spreadsheet would run; numbers stay."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = rows.column(place)
            risky = pc.match_substring_regex(column, "^[=+@\\t\\r-]")
            if pc.any(risky).as_py():
                quoted = pc.binary_join_element_wise(pa.scalar("'", field.type), column, pa.scalar("", field.type))
                rows = rows.set_column(place, field, pc.if_else(risky, quoted, column))
    return rows
