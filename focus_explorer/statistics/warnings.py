"""Warnings on rows that rest on too few tokens or units."""

from __future__ import annotations

from focus_explorer.statistics.rows import StatisticRow
from focus_explorer.words import counted

FEW_UNITS, ENOUGH_UNITS = 10, 30
FEW_TOKENS = 30


def caution(row: StatisticRow, size: int, units: int) -> str:
    """Why a row is not reliable, "" if it is.

    Args:
        row: without its warning.
        size: tokens or pairs the row rests on.
        units: that hold some of these.
    """
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
