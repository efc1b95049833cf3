"""The one shape every statistic has: a value, its interval, the same under each baseline, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import pyarrow as pa

from focus_explorer.words import counted

SCOPES = ("run", "layer", "group")


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticRow:
    """One number of a run or a corpus; a missing number is None.

    Attributes:
        scope: `run` (over all layers), `layer` or `group`.
        group: letter of the group; None for a layer or run.
        category: what the statistic is about beyond its name, such as a tag set or a tag; "" if nothing.
        value, low, high: estimate and 95 % bootstrap interval over units.
        shuffled, shuffled_low, shuffled_high: mean and 95 % range under permuted assignments of the same sizes.
        random, random_low, random_high: the same statistic, with its interval, for random centroids on the same text.
        window_only: the same without groups: one group of all tokens, pairs of window and sinks alone, heads with
            full attention counted with the window, as if they had none of it.
        p_value: how often shuffled assignments reach the value, itself counted in; q_value: corrected over all rows of
            this scope, statistic and set of categories (Benjamini and Hochberg).
        count: tokens or pairs in the denominator; denominator: what they are.
        units: resampled units; unit: `sentence`, `document` or `block`.
        warning: why the number is not reliable, "" if it is.
    """

    scope: str
    statistic: str
    value: float | None
    count: int
    denominator: str
    units: int
    unit: str
    layer: int | None = None
    group: str | None = None
    category: str = ""
    low: float | None = None
    high: float | None = None
    shuffled: float | None = None
    shuffled_low: float | None = None
    shuffled_high: float | None = None
    random: float | None = None
    random_low: float | None = None
    random_high: float | None = None
    window_only: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    warning: str = ""


def schema_of(columns: str) -> pa.Schema:
    """Names and types of a table, such as "layer:int32 group:string share"; float64 where no type is named."""
    named = (column.partition(":") for column in columns.split())
    return pa.schema([(name, getattr(pa, kind or "float64")()) for name, _, kind in named])


SCHEMA = schema_of(
    "scope:string layer:int32 group:string statistic:string category:string value low high "
    "shuffled shuffled_low shuffled_high random random_low random_high window_only p_value q_value "
    "count:int64 denominator:string units:int64 unit:string warning:string"
)
COLUMNS = tuple(SCHEMA.names)
assert set(COLUMNS) == {field.name for field in fields(StatisticRow)}


def to_table(rows: Iterable[StatisticRow]) -> pa.Table:
    """Rows as an Arrow table of `SCHEMA`; NaN becomes null."""
    values = [{name: getattr(row, name) for name in COLUMNS} for row in rows]
    plain = [{name: None if value != value else value for name, value in row.items()} for row in values]
    return pa.Table.from_pylist(plain, schema=SCHEMA)


FEW_UNITS, ENOUGH_UNITS = 10, 30
FEW_TOKENS = 30


def caution(row: StatisticRow, size: int, units: int) -> str:
    """Why a row is not reliable, "" if it is."""
    reasons = []
    if size == 0:
        return "no tokens in this group" if row.scope == "group" else "nothing to count"
    if size < FEW_TOKENS:
        reasons.append(f"only {counted(size, 'pair' if 'pairs' in row.denominator else 'token')}")
    of_some = "" if units == row.units else "in "
    if units < FEW_UNITS:
        reasons.append(f"{of_some}{counted(units, row.unit)}: too {'few' if of_some else 'short'} to tell")
    elif units < ENOUGH_UNITS:
        reasons.append(f"only {of_some}{counted(units, row.unit)}: the interval is rough")
    if row.p_value is not None and row.p_value > 0.05:
        reasons.append("no more than under shuffled assignments")
    return "; ".join(reasons)
