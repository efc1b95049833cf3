"""Statistics of a run for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics.measure import statistics_rows

ALL_LAYERS = -1
MOST_ROWS = 5000


class StatisticFunctions:
    """Functions about statistics."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def statistics(self, run_id: str, table: str = "statistics", layer: int = ALL_LAYERS) -> list:
        """Statistics of the groups, each number with its interval and baselines; measures nothing itself.

        Args:
            run_id: as listed by runs.
            table: statistics, characteristic, categories, agreement, distances, links or pairs; docs/statistics.md says
                what they hold.
            layer: only rows of this layer; -1 for those of all layers.

        Returns:
            Rows as objects, at most 5,000: value, low and high (95 %), shuffled, random (null until random centroids
            were run on the text), window_only (heads with full attention counted with the window, as if they had none
            of it), p_value, q_value, count with denominator, units, and a warning.
        """
        rows = statistics_rows(self.service, run_id, table)
        if layer != ALL_LAYERS:
            rows = [row for row in rows if row["layer"] == layer]
        if len(rows) > MOST_ROWS:
            raise InputError(f"the table has {len(rows):,} rows", expected=f"at most {MOST_ROWS:,}", fix="name a layer")
        return rows


def functions(service: Service) -> dict[str, Callable[..., Any]]:
    """Name -> function."""
    made = StatisticFunctions(service)
    return {"statistics": made.statistics}
