"""When a number tells little, and how to say so."""

from __future__ import annotations

from focus_explorer.statistics.rows import StatisticRow

FEW_UNITS, ENOUGH_UNITS = 10, 30
FEW_TOKENS = 30


def caution(row: StatisticRow, size: int) -> str:
    """Why a row tells little, "" if it does.

    Args:
        size: tokens or pairs the row rests on.
    """
    said = []
    if size == 0:
        return "no tokens in this group" if row.scope == "group" else "nothing to count"
    if size < FEW_TOKENS:
        said.append(f"only {size} tokens")
    if row.units < FEW_UNITS:
        said.append(f"{row.units} {row.unit}{'' if row.units == 1 else 's'}: too short to tell")
    elif row.units < ENOUGH_UNITS:
        said.append(f"only {row.units} {row.unit}s: the interval is rough")
    if row.p_value is not None and row.p_value > 0.05:
        said.append("no more than under shuffled assignments")
    return "; ".join(said)
