"""Differences between a bundle's tables and those made again, as lines of text: where, how many cells, how much."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from focus_explorer.exports.bundle.read import Bundle
from focus_explorer.exports.bundle.tables import files_of
from focus_explorer.words import counted

Row = dict[str, Any]


def of_values(what: str, then: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """A line for every key whose values differ; a key that one side lacks counts too.

    Args:
        what: begins every line.
        then: recorded values.
        here: values of this machine.
    """
    lines = []
    for key in sorted(then.keys() | here.keys()):
        old, new = then.get(key), here.get(key)
        if old != new:
            lines.append(f"{what}{key}: {_shown(old)} in the bundle, {_shown(new)} here")
    return lines


def of_tables(bundle: Bundle, entry: Row, folder: Path, left_out: Mapping[str, str]) -> list[str]:
    """Differences in the files of a run's tables; empty when every file has the same bytes.

    Args:
        bundle: has the recorded hashes and data.
        entry: of the run in its manifest.
        folder: where the tables were made again.
        left_out: tables that could not be made, and why.
    """
    hashes, lines = bundle.hashes(), []
    for what in entry["tables"]:
        files = files_of(entry["run_id"], what)
        if what in left_out:
            lines.append(f"{_name(entry, what)}: cannot be made here: {left_out[what]}")
            continue
        other = [path for _, path in files if _sha256(folder / path) != hashes[path]]
        if other:
            lines += _of_table(bundle, _name(entry, what), folder, files[0][1], other)
    return lines


def _of_table(bundle: Bundle, name: str, folder: Path, data: str, other: list[str]) -> list[str]:
    stored = bundle.file(data)
    if stored is None:
        return [f"{name}: other bytes in {', '.join(other)} (the manifest came without the tables: cells unknown)"]
    old, new = pyarrow.parquet.read_table(io.BytesIO(stored)), pyarrow.parquet.read_table(folder / data)
    cells = of_cells(old, new)
    lines = [f"{name}: {line}" for line in cells + of_values("metadata, ", _provenance(old), _provenance(new))]
    if not cells:
        lines.append(f"{name}: the same cells in other bytes: {', '.join(other)}")
    return lines


def of_cells(old: pa.Table, new: pa.Table) -> list[str]:
    """Differences of two tables: rows, columns, and the cells of each column."""
    lines = []
    for names, place in ((_only(old, new), "the bundle"), (_only(new, old), "what was made here")):
        if names:
            lines.append(f"columns only in {place}: {', '.join(names)}")
    if old.num_rows != new.num_rows:
        return [*lines, f"{counted(old.num_rows, 'row')} in the bundle, {new.num_rows:,} here"]
    for name in old.column_names:
        if name in new.column_names:
            line = _of_column(name, old[name], new[name])
            lines += [line] if line else []
    return lines


def _of_column(name: str, old: pa.ChunkedArray, new: pa.ChunkedArray) -> str:
    if old.type != new.type:
        return f"column {name}: {old.type} in the bundle, {new.type} here"
    if old.equals(new):
        return ""
    a, b = old.to_pylist(), new.to_pylist()
    places = [place for place, pair in enumerate(zip(a, b, strict=True)) if not _equal(*pair)]
    if not places:
        return ""
    first = places[0]
    line = f"column {name}: {len(places):,} of {len(a):,} cells differ"
    numbers = [abs(b[place] - a[place]) for place in places if _is_number(a[place]) and _is_number(b[place])]
    if numbers:
        line += f", by at most {np.max(numbers):.3g}"
    return f"{line} (first in row {first + 1}: {_shown(a[first])} in the bundle, {_shown(b[first])} here)"


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))  # two NaNs are the same cell


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, float) else str(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _only(table: pa.Table, other: pa.Table) -> list[str]:
    return [name for name in table.column_names if name not in other.column_names]


def _provenance(table: pa.Table) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((table.schema.metadata or {}).get(b"focus_explorer", b"{}"))
    return values


def _name(entry: Row, what: str) -> str:
    return f"table {what} of {entry['run_id']}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
