"""Tables of statistics -> columns of numbers for the page, each compared with its baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import pyarrow as pa

from focus_explorer.statistics.describe import STATISTICS

DIGITS = 6  # significant
DIFFERENCE = "_minus_random"
MOST_P = 0.05
Row = Mapping[str, Any]
Columns = TypeVar("Columns")


def as_columns(payload: type[Columns], rows: Sequence[Row]) -> Columns:
    """Rows as the columns of a payload, numbers with `DIGITS` significant digits; a missing value is None."""
    return cast(Columns, {name: [_short(row.get(name)) for row in rows] for name in payload.__annotations__})


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if value == value else None


def judged(table: pa.Table, scope: str) -> list[dict[str, Any]]:
    """Rows of one scope, each with its difference from random centroids and its position relative to both baselines.

    `from_shuffled` and `from_random` are `above`, `below`, `same` (not distinguishable) or None (nothing to compare).
    """
    rows = table.filter(pa.compute.equal(table["scope"], scope)).to_pylist()
    gains = {_key(row, DIFFERENCE): row for row in rows if row["statistic"].endswith(DIFFERENCE)}
    judged_rows = []
    for row in rows:
        if row["statistic"].endswith(DIFFERENCE):
            continue
        gain = gains.get(_key(row))
        declared = STATISTICS[row["statistic"]]
        new = {name: getattr(declared, name) for name in ("title", "meaning", "family", "decimals")}
        new |= {"from_shuffled": from_shuffled(row), "from_random": from_random(row, gain)}
        if gain is not None:
            new |= {"difference": gain["value"], "difference_low": gain["low"], "difference_high": gain["high"]}
        judged_rows.append(row | new)
    declared_order = list(STATISTICS)
    return sorted(judged_rows, key=lambda row: declared_order.index(row["statistic"]))


def _key(row: Row, suffix: str = "") -> tuple[Any, ...]:
    return row["layer"], row["group"], row["statistic"].removesuffix(suffix), row["category"]


def from_shuffled(row: Row) -> str | None:
    """Whether a value lies above or below what shuffled groups give; None where shuffling changes nothing."""
    value, shuffled = row["value"], row["shuffled"]
    if value is None or shuffled is None or value == shuffled:
        return None
    if row["p_value"] is None:  # an exact expectation: the value's own interval decides
        return _side(row["low"], row["high"], shuffled)
    if row["p_value"] <= MOST_P:
        return "above"
    return "below" if row["shuffled_low"] is not None and value < row["shuffled_low"] else "same"


def from_random(row: Row, gain: Row | None) -> str | None:
    """Whether a value lies above or below that of random centroids.

    `gain`: the row of the difference, resampled with both; without it the two intervals must not overlap.
    """
    if gain is not None:
        return _side(gain["low"], gain["high"], 0.0)
    ends = [row[name] for name in ("low", "high", "random_low", "random_high")]
    if row["random"] is None or any(end is None for end in ends):
        return None
    low, high, other_low, other_high = ends
    return "above" if low > other_high else "below" if high < other_low else "same"


def _side(low: float | None, high: float | None, other: float) -> str | None:
    if low is None or high is None:
        return None
    return "above" if low > other else "below" if high < other else "same"


def of_layer(table: pa.Table, layer: int) -> pa.Table:
    return table.filter(pa.compute.equal(table["layer"], layer))
