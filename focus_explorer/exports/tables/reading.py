"""Tables for reading: the columns that LaTeX and Markdown show, with heading and decimals; and tables as Markdown."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from focus_explorer.exports.tables.sources import BUDGET, SETTING_COLUMNS, SPECIAL, TABLE_DESCRIPTIONS
from focus_explorer.statistics.rows import SCOPES
from focus_runtime.config import setting_words


@dataclass(frozen=True, slots=True)
class Column:
    """One column for reading.

    Attributes:
        name, high: columns of the table; `high` only of an interval, whose lower end is `name`.
        kind: `name` is that of a statistic, its words apart; `piece` the exact text of a token; `prose` may wrap.
    """

    name: str
    title: str
    kind: Literal["whole", "number", "word", "name", "piece", "prose", "interval"] = "number"
    digits: int = 3
    high: str = ""


def _whole(name: str, title: str) -> Column:
    return Column(name, title, "whole")


def _word(name: str, title: str) -> Column:
    return Column(name, title, "word")


INTERVAL = Column("low", "95 % interval", "interval", 3, "high")
USUAL = {  # what columns are in most tables
    column.name: column
    for column in (
        _whole("layer", "Layer"),
        _whole("part", "Part"),
        _whole("head", "Head"),
        _whole("position", "Position"),
        _whole("rank", "Rank"),
        _whole("tokens", "Tokens"),
        _whole("num_tokens", "Tokens"),
        _whole("top_k", "Top k"),
        _whole("window_size", "Window"),
        _whole("local_only", "Window"),
        _whole("local_and_group", "Both"),
        _whole("group_only", "Group"),
        _whole("sink_only", "Sinks"),
        _whole("dropped", "Dropped"),
        _word("group", "Group"),
        _word("label", "Group"),
        _word("heads", "Heads"),
        _word("mode", "Attention"),
        _word("stage", "Stage"),
        _word("category", "Category"),
        Column("piece", "Token", "piece"),
        Column("query_piece", "Query", "piece"),
        Column("key_piece", "Key", "piece"),
        Column("share", "Share"),
        Column("retained_pairs", "Pairs kept"),
        Column("shuffled", "Shuffled"),
        Column("random", "Random"),
        Column("q_value", "q"),
        INTERVAL,
    )
}

CAUSES = ("local_only", "local_and_group", "group_only", "sink_only", "dropped")  # in the order of the columns


def _columns(*chosen: str | Column) -> tuple[Column, ...]:
    return tuple(USUAL[one] if isinstance(one, str) else one for one in chosen)


READING: dict[str, tuple[Column, ...]] = {
    "documents": _columns(
        _whole("document", "Document"),
        Column("name", "Name", "name"),
        "num_tokens",
        Column("perplexity_full", "Full", digits=2),
        Column("perplexity_focus", "Focus", digits=2),
        Column("perplexity_random", "Random", digits=2),
        Column("model_seconds", "Forward passes (s)", digits=1),
    ),
    "groups": _columns(
        "layer",
        "label",
        "tokens",
        "share",
        Column("mean_confidence", "Confidence"),
        Column("frequent_tokens", "Most frequent tokens × uses", "prose"),
    ),
    "group_names": _columns(
        "layer",
        "label",
        Column("name", "Name", "prose"),
        Column("phi", "Phi"),
        Column("share", "Group"),
        Column("base", "Text"),
        "random",
    ),
    "tokens": _columns(
        "position",
        "piece",
        Column("nll_full", "Full (nats)"),
        Column("nll_focus", "Focus (nats)"),
        Column("nll_difference", "Difference (nats)"),
    ),
    "layers": _columns("layer", Column("dominance", "Largest group"), "retained_pairs", *CAUSES),
    "assignments": _columns(
        "layer", "position", "piece", "label", Column("confidence", "Confidence"), Column("entropy", "Entropy (nats)")
    ),
    "head_assignments": _columns("layer", "part", "heads", "position", "piece", _whole("membership", "Bit set")),
    "losses": _columns("mode", "position", Column("nll", "Loss (nats)")),
    "timings": _columns(
        "mode",
        "stage",
        Column("median", "Median (ms)", digits=1),
        Column("low", "Range (ms)", "interval", 1, "high"),
        _whole("repeats", "Repeats"),
    ),
    "timing_repeats": _columns(
        "mode", "stage", _whole("repeat", "Repeat"), Column("milliseconds", "Time (ms)", digits=1)
    ),
    "heads": _columns(
        "layer", "part", "heads", _word("full_attention", "Full"), "top_k", "window_size", "retained_pairs"
    ),
    "masks": _columns("layer", "part", _whole("row_block", "Query block"), _whole("col_block", "Key block"), *CAUSES),
    "attention": _columns(
        "layer",
        "head",
        Column("local", "Window"),
        Column("sinks", "Sinks"),
        Column("grouped", "Group"),
        Column("dropped", "Dropped"),
        Column("mass_kept", "Kept"),
    ),
    "comparisons": _columns(
        _word("kind", "Groups"),
        "top_k",
        "window_size",
        Column("perplexity_focus", "Perplexity", digits=2),
        Column("delta_mean", "Loss difference (nats)"),
        Column("delta_low", "95 % interval", "interval", 3, "delta_high"),
        "retained_pairs",
    ),
    "statistics": _columns(
        "layer",
        "group",
        Column("statistic", "Statistic", "name"),
        _word("category", "Of"),
        Column("value", "Value"),
        INTERVAL,
        "shuffled",
        "random",
        "q_value",
        _whole("count", "n"),
    ),
    "characteristic": _columns(
        "layer", "group", "rank", "piece", _whole("uses", "Uses"), Column("z", "z", digits=1), "q_value"
    ),
    "categories": _columns(
        "layer",
        "group",
        _word("scheme", "Scheme"),
        "category",
        "tokens",
        "share",
        Column("share_of_text", "Share of text"),
    ),
    "agreement": _columns(
        "layer",
        _whole("other_layer", "Other layer"),
        Column("adjusted_rand", "Adjusted Rand"),
        INTERVAL,
        "shuffled",
        Column("overlap", "Overlap"),
    ),
    "distances": _columns(
        "layer",
        _whole("first", "From"),
        _whole("last", "To"),
        _whole("pairs", "Pairs"),
        Column("share", "Kept"),
        INTERVAL,
        "shuffled",
        "random",
        Column("window_only", "Window only"),
    ),
    "predictions": _columns(
        "position",
        "piece",
        "mode",
        "rank",
        _whole("place", "Place"),
        Column("predicted", "Predicted", "piece"),
        Column("probability", "Probability"),
    ),
    "head_costs": _columns(
        "layer",
        "head",
        Column("estimated", "Estimated (nats)", digits=4),
        Column("nll", "Measured loss (nats)", digits=4),
        Column("dropped", "Attention dropped"),
    ),
    "missing_links": _columns(
        _whole("token", "Token"),
        "piece",
        "layer",
        "head",
        "query_piece",
        "key_piece",
        Column("predicted", "Predicted"),
        Column("change", "Verified"),
        _word("random_keeps", "Random"),
    ),
    "links": _columns(
        "layer",
        "head",
        _word("kind", "Link"),
        "query_piece",
        "key_piece",
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
    if not rows.num_rows:
        return chosen
    # a column without a value in any row was not measured, or is not applicable, as the group of a layer
    return [one for one in chosen if any(value not in (None, "") for value in rows[one.name].to_pylist())] or chosen


def reading_order(rows: pa.Table, what: str) -> pa.Table:
    """Statistics of the run first, then layer by layer for each statistic, then groups; other tables as they are."""
    if what != "statistics":
        return rows
    scopes = pa.array([SCOPES.index(scope) for scope in rows["scope"].to_pylist()], pa.int8())
    keys = [(name, "ascending") for name in ("_scope", "statistic", "category", "layer", "group")]
    return rows.append_column("_scope", scopes).sort_by(keys).drop_columns("_scope")


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
        f"Run {row['run_id']}: {row['model_id']}, centroids {row['centroids']}, {setting_words(given)}"
        f"{', no special tokens' if row.get(SPECIAL) == 'none' else ''}."
    )


def shown_piece(piece: str) -> str:
    """A token's exact text on one line: control characters as escapes, spaces unchanged."""
    escapes = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
    return "".join(escapes.get(c) or (c if c.isprintable() else _code(ord(c))) for c in piece)


def _code(point: int) -> str:
    return f"\\x{point:02x}" if point < 256 else f"\\u{{{point:x}}}"


_SPECIAL = "\\`*_{}[]()#+-.!|~^$:="


def markdown_table(rows: pa.Table, what: str, total: int) -> str:
    """A caption, the table, and how many of the `total` rows it shows."""
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
    return "| " + " | ".join(cells) + " |"


def escape_markdown(text: str, *, code: bool = False) -> str:
    """Text that Markdown shows as it is, or as code; a pipe would end the cell and `<` begin a tag."""
    if code:  # an entity is not read inside backquotes, so code is an HTML element
        inside = html.escape(text, quote=False)
        return "<code>" + "".join(f"&#{ord(c)};" if c in _SPECIAL else c for c in inside) + "</code>"
    return "".join("\\" + c if c in "\\`*_[]|~$" else c for c in html.escape(text, quote=False))


def escape_pipes(text: str) -> str:
    """Text with Markdown of its own that stays in its cell."""
    return text.replace("|", "\\|")
