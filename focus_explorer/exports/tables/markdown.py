"""A table for reading as Markdown (GitHub's tables)."""

from __future__ import annotations

import html
from typing import Any

import pyarrow as pa

from focus_explorer.exports.tables.columns import Column, number, reading_columns, setting_sentence, shown_piece
from focus_explorer.exports.tables.sources import TABLE_DESCRIPTIONS

_SPECIAL = "\\`*_{}[]()#+-.!|~^$:="


def markdown_table(rows: pa.Table, what: str, total: int) -> str:
    """A caption, the table, and how many of the rows it shows.

    Args:
        rows: the rows to show.
        total: rows the table has.
    """
    columns = reading_columns(rows, what)
    lines = [f"**{_escape(TABLE_DESCRIPTIONS[what])}**", ""]
    found = rows.to_pylist()
    if found:
        lines += [_escape(setting_sentence(found[0])), ""]
    lines.append(_line(column.title.replace("|", "\\|") for column in columns))
    lines.append(_line("---" if c.kind in ("word", "name", "piece", "prose") else "--:" for c in columns))
    lines += [_line(cell(row, column) for column in columns) for row in found]
    if total > len(found):
        lines += ["", f"The first {len(found):,} of {total:,} rows."]
    if not found:
        lines += ["", "No rows."]
    return "\n".join(lines) + "\n"


def cell(row: dict[str, Any], column: Column) -> str:
    """One cell as Markdown; a missing number is a dash."""
    value = row[column.name]
    if value is None:
        return "–"
    if column.kind == "interval":
        high = row[column.high]
        return "–" if high is None else f"{number(value, column)} to {number(high, column)}"
    if column.kind == "number":
        return number(value, column)
    if column.kind == "piece":
        return _escape(f'"{shown_piece(value)}"', code=True)
    return f"{value:,}" if column.kind == "whole" else _escape(shown_piece(str(value)))


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape(text: str, *, code: bool = False) -> str:
    """Text that Markdown shows as it is; a pipe would end the cell and `<` begin a tag."""
    if code:  # an entity is not read inside backquotes, so code is an HTML element
        inside = html.escape(text, quote=False)
        return "<code>" + "".join(f"&#{ord(c)};" if c in _SPECIAL else c for c in inside) + "</code>"
    return "".join("\\" + c if c in "\\`*_[]|~$" else c for c in html.escape(text, quote=False))
