"""Tables for reading: the columns that LaTeX and Markdown show, with heading and decimals; and tables as Markdown."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from focus_explorer.exports.tables.sources import BUDGET, SETTING_COLUMNS, SPECIAL, TABLE_DESCRIPTIONS
from focus_explorer.statistics.rows import SCOPES
from focus_explorer.usecases.budget import other_settings
from focus_explorer.words import counted

KINDS = ("whole", "number", "word", "name", "piece", "prose", "interval")


@dataclass(frozen=True, slots=True)
class Column:
    """One column for reading.

    Attributes:
        name: column of the table; of an interval its lower end.
        title: heading, with its unit.
        kind: `whole` or `number` (aligned at the decimal point), `word` (short text), `name` (of a
            statistic, its words apart), `piece` (exact text of a token),
            `prose` (long text that may wrap), `interval` (`0.40 to 0.44`).
        digits: decimals of a number or an interval.
        high: upper end of an interval.
    """

    name: str
    title: str
    kind: str = "number"
    digits: int = 3
    high: str = ""


def _whole(name: str, title: str) -> Column:
    return Column(name, title, "whole")


LAYER, POSITION = _whole("layer", "Layer"), _whole("position", "Position")
GROUP, PIECE = Column("group", "Group", "word"), Column("piece", "Token", "piece")

READING: dict[str, tuple[Column, ...]] = {
    "documents": (
        _whole("document", "Document"),
        Column("name", "Name", "name"),
        _whole("num_tokens", "Tokens"),
        Column("perplexity_full", "Full", digits=2),
        Column("perplexity_focus", "Focus", digits=2),
        Column("perplexity_random", "Random", digits=2),
        Column("model_seconds", "Forward passes (s)", digits=1),
    ),
    "groups": (
        LAYER,
        Column("label", "Group", "word"),
        _whole("tokens", "Tokens"),
        Column("share", "Share"),
        Column("mean_confidence", "Confidence"),
        Column("frequent_tokens", "Most frequent tokens × uses", "prose"),
    ),
    "group_names": (
        LAYER,
        Column("label", "Group", "word"),
        Column("name", "Name", "prose"),
        Column("phi", "Phi"),
        Column("share", "Group"),
        Column("base", "Text"),
        Column("random", "Random"),
    ),
    "tokens": (
        POSITION,
        PIECE,
        Column("nll_full", "Full (nats)"),
        Column("nll_focus", "Focus (nats)"),
        Column("nll_difference", "Difference (nats)"),
    ),
    "layers": (
        LAYER,
        Column("dominance", "Largest group"),
        Column("retained_pairs", "Pairs kept"),
        _whole("local_only", "Window"),
        _whole("local_and_group", "Both"),
        _whole("group_only", "Group"),
        _whole("sink_only", "Sinks"),
        _whole("dropped", "Dropped"),
    ),
    "assignments": (
        LAYER,
        POSITION,
        PIECE,
        Column("label", "Group", "word"),
        Column("confidence", "Confidence"),
        Column("entropy", "Entropy (nats)"),
    ),
    "head_assignments": (
        LAYER,
        _whole("part", "Part"),
        Column("heads", "Heads", "word"),
        POSITION,
        PIECE,
        _whole("membership", "Bit set"),
    ),
    "losses": (Column("mode", "Attention", "word"), POSITION, Column("nll", "Loss (nats)")),
    "timings": (
        Column("mode", "Attention", "word"),
        Column("stage", "Stage", "word"),
        Column("median", "Median (ms)", digits=1),
        Column("low", "Range (ms)", "interval", 1, "high"),
        _whole("repeats", "Repeats"),
    ),
    "timing_repeats": (
        Column("mode", "Attention", "word"),
        Column("stage", "Stage", "word"),
        _whole("repeat", "Repeat"),
        Column("milliseconds", "Time (ms)", digits=1),
    ),
    "heads": (
        LAYER,
        _whole("part", "Part"),
        Column("heads", "Heads", "word"),
        Column("full_attention", "Full", "word"),
        _whole("top_k", "Top k"),
        _whole("window_size", "Window"),
        Column("retained_pairs", "Pairs kept"),
    ),
    "masks": (
        LAYER,
        _whole("part", "Part"),
        _whole("row_block", "Query block"),
        _whole("col_block", "Key block"),
        _whole("local_only", "Window"),
        _whole("local_and_group", "Both"),
        _whole("group_only", "Group"),
        _whole("sink_only", "Sinks"),
        _whole("dropped", "Dropped"),
    ),
    "attention": (
        LAYER,
        _whole("head", "Head"),
        Column("local", "Window"),
        Column("sinks", "Sinks"),
        Column("grouped", "Group"),
        Column("dropped", "Dropped"),
        Column("mass_kept", "Kept"),
    ),
    "comparisons": (
        Column("kind", "Groups", "word"),
        _whole("top_k", "Top k"),
        _whole("window_size", "Window"),
        Column("perplexity_focus", "Perplexity", digits=2),
        Column("delta_mean", "Loss difference (nats)"),
        Column("delta_low", "95 % interval", "interval", 3, "delta_high"),
        Column("retained_pairs", "Pairs kept"),
    ),
    "statistics": (
        LAYER,
        GROUP,
        Column("statistic", "Statistic", "name"),
        Column("category", "Of", "word"),
        Column("value", "Value"),
        Column("low", "95 % interval", "interval", 3, "high"),
        Column("shuffled", "Shuffled"),
        Column("random", "Random"),
        Column("q_value", "q"),
        _whole("count", "n"),
    ),
    "characteristic": (
        LAYER,
        GROUP,
        _whole("rank", "Rank"),
        PIECE,
        _whole("uses", "Uses"),
        Column("z", "z", digits=1),
        Column("q_value", "q"),
    ),
    "categories": (
        LAYER,
        GROUP,
        Column("scheme", "Scheme", "word"),
        Column("category", "Category", "word"),
        _whole("tokens", "Tokens"),
        Column("share", "Share"),
        Column("share_of_text", "Share of text"),
    ),
    "agreement": (
        LAYER,
        _whole("other_layer", "Other layer"),
        Column("adjusted_rand", "Adjusted Rand"),
        Column("low", "95 % interval", "interval", 3, "high"),
        Column("shuffled", "Shuffled"),
        Column("overlap", "Overlap"),
    ),
    "distances": (
        LAYER,
        _whole("first", "From"),
        _whole("last", "To"),
        _whole("pairs", "Pairs"),
        Column("share", "Kept"),
        Column("low", "95 % interval", "interval", 3, "high"),
        Column("shuffled", "Shuffled"),
        Column("random", "Random"),
        Column("window_only", "Window only"),
    ),
    "predictions": (
        POSITION,
        PIECE,
        Column("mode", "Attention", "word"),
        _whole("rank", "Rank"),
        _whole("place", "Place"),
        Column("predicted", "Predicted", "piece"),
        Column("probability", "Probability"),
    ),
    "head_costs": (
        LAYER,
        _whole("head", "Head"),
        Column("estimated", "Estimated (nats)", digits=4),
        Column("nll", "Measured loss (nats)", digits=4),
        Column("dropped", "Attention dropped"),
    ),
    "missing_links": (
        _whole("token", "Token"),
        PIECE,
        LAYER,
        _whole("head", "Head"),
        Column("query_piece", "Query", "piece"),
        Column("key_piece", "Key", "piece"),
        Column("predicted", "Predicted"),
        Column("change", "Verified"),
        Column("random_keeps", "Random", "word"),
    ),
    "links": (
        LAYER,
        _whole("head", "Head"),
        Column("kind", "Link", "word"),
        Column("query_piece", "Query", "piece"),
        Column("key_piece", "Key", "piece"),
        _whole("distance", "Distance"),
        Column("probability", "Attention"),
        Column("affinity", "Affinity"),
    ),
}


def reading_columns(rows: pa.Table, what: str) -> list[Column]:
    """The chosen columns that the table has; every column but the run's setting where none were chosen."""
    names = set(rows.column_names)
    chosen = [c for c in READING.get(what, ()) if c.name in names and (not c.high or c.high in names)]
    if len(chosen) < 2:
        chosen = [_guess(field) for field in rows.schema if field.name not in SETTING_COLUMNS]
    return [column for column in chosen if not _empty(rows, column.name)] or chosen


def reading_order(rows: pa.Table, what: str) -> pa.Table:
    """Statistics of the run first, then layer by layer for each statistic, then groups; other tables as they are."""
    if what != "statistics":
        return rows
    scopes = pa.array([SCOPES.index(scope) for scope in rows["scope"].to_pylist()], pa.int8())
    keys = [(name, "ascending") for name in ("_scope", "statistic", "category", "layer", "group")]
    return rows.append_column("_scope", scopes).sort_by(keys).drop_columns("_scope")


def _empty(rows: pa.Table, name: str) -> bool:
    """Without a value in any row: not measured, or not applicable, as the group of a layer."""
    return bool(rows.num_rows) and all(value is None or value == "" for value in rows[name].to_pylist())


def _guess(field: pa.Field) -> Column:
    title = field.name.replace("_", " ").capitalize()
    if pa.types.is_integer(field.type):
        return _whole(field.name, title)
    if pa.types.is_floating(field.type):
        return Column(field.name, title)
    return Column(field.name, title, "piece" if field.name.endswith("piece") else "word")


def number(value: float, column: Column) -> str:
    """A number with the column's decimals; one that rounds to zero has no sign."""
    text = str(value) if column.kind == "whole" else f"{value:.{column.digits}f}"
    return text.lstrip("-") if text.startswith("-") and not text.strip("-0.") else text


def setting_sentence(row: dict[str, Any]) -> str:
    """The run and its setting, for a caption."""
    given = {name: row.get(name) for name in SETTING_COLUMNS}
    for name in ("window_growth", BUDGET):
        given[name] = json.loads(str(given[name] or "null"))
    return (
        f"Run {row['run_id']}: {row['model_id']}, centroids {row['centroids']}, K={row['num_groups']}, "
        f"k={row['top_k']}, window {row['window']}, {counted(row['num_sinks'], 'sink')}, {row['assignment']} assignment"
        f"{other_settings(given)}{', no special tokens' if row.get(SPECIAL) == 'none' else ''}."
    )


def shown_piece(piece: str) -> str:
    """A token's exact text on one line: control characters as escapes, spaces unchanged."""
    escapes = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
    return "".join(escapes.get(c) or (c if c.isprintable() else _code(ord(c))) for c in piece)


def _code(point: int) -> str:
    return f"\\x{point:02x}" if point < 256 else f"\\u{{{point:x}}}"


_SPECIAL = "\\`*_{}[]()#+-.!|~^$:="


def markdown_table(rows: pa.Table, what: str, total: int) -> str:
    """A caption, the table, and how many of the rows it shows.

    Args:
        rows: the rows to show.
        what: name of the table.
        total: rows the table has.
    """
    columns = reading_columns(rows, what)
    lines = [f"**{escape_markdown(TABLE_DESCRIPTIONS[what])}**", ""]
    shown = rows.to_pylist()
    if shown:
        lines += [escape_markdown(setting_sentence(shown[0])), ""]
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
        return escape_markdown(f'"{shown_piece(value)}"', code=True)
    return f"{value:,}" if column.kind == "whole" else escape_markdown(shown_piece(str(value)))


def line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"


def escape_markdown(text: str, *, code: bool = False) -> str:
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
