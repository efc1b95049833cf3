"""A table for reading as Markdown (GitHub's tables)."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from focus_explorer.exports.tables.columns import Column, number, reading_columns, setting_sentence, shown_piece
from focus_explorer.exports.tables.sources import TABLE_DESCRIPTIONS

_SPECIAL = "\\`*_{}[]()#+-.!|~^$:="


def markdown_table(rows: pa.Table, what: str, total: int) -> str:
    """A caption, the table, and how many of the rows it shows.

    Args:
        rows: the rows to show.
        what: name of the table.
        total: rows the table has.
    """
    columns = reading_columns(rows, what)
    lines = [f"**{escape(TABLE_DESCRIPTIONS[what])}**", ""]
    shown = rows.to_pylist()
    if shown:
        lines += [escape(setting_sentence(shown[0])), ""]
    lines.append(line(escape_pipes(column.title) for column in columns))
    lines.append(line("---" if c.kind in ("word", "name", "piece", "prose") else "--:" for c in columns))
    lines += [line(cell(row, column) for column in columns) for row in shown]
    if total > len(shown):
        lines += ["", f"The first {len(shown):,} of {total:,} rows."]
    if not shown:
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
        return escape(f'"{shown_piece(value)}"', code=True)
    return f"{value:,}" if column.kind == "whole" else escape(shown_piece(str(value)))


def line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"


def escape(text: str, *, code: bool = False) -> str:
    """Text that Markdown shows as it is; a pipe would end the cell and `<` begin a tag.

    Args:
        text: any text.
        code: in the type of code.
    """
    if code:  # an entity is not read inside backquotes, so code is an HTML element
        inside = html.escape(text, quote=False)
        return "<code>" + "".join(f"&#{ord(c)};" if c in _SPECIAL else c for c in inside) + "</code>"
    return "".join("\\" + c if c in "\\`*_[]|~$" else c for c in html.escape(text, quote=False))


def escape_pipes(text: str) -> str:
    """Text with Markdown of its own that stays in its cell."""
    return text.replace("|", "\\|")
