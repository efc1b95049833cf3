"""Stored runs for programs: list, numbers, tables and a user's own SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from focus_explorer.exports.tables.write import table
from focus_explorer.usecases.compare.runs import compare_numbers
from focus_explorer.usecases.runs import list_runs, prediction_rows, token_rows
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.sql import run_sql
from focus_explorer.web.api.request import shown_summary


class RunFunctions:
    """Functions about stored runs."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def runs(self) -> list:
        """List the stored runs, newest first, with perplexities, pairs kept, names and tags."""
        return [plain(row) for row in list_runs(self.service.database)]

    def run(self, run_id: str) -> dict:
        """The numbers of one run.

        Args:
            run_id: as listed by runs.
        """
        return shown_summary(self.service, run_id)

    def groups(self, run_id: str) -> list:
        """Every group of every layer of a run: share of tokens, confidence, most frequent tokens.

        Args:
            run_id: as listed by runs.
        """
        return self._table(run_id, "groups")

    def layers(self, run_id: str) -> list:
        """Every layer of a run: largest group, pairs kept and pairs by cause.

        Args:
            run_id: as listed by runs.
        """
        return self._table(run_id, "layers")

    def tokens(self, run_id: str, first: int = 0, count: int = 500) -> list:
        """Tokens of a run with their losses and their groups in every layer.

        Args:
            run_id: as listed by runs.
            first: position of the first token.
            count: number of tokens, at most 5000.
        """
        return [plain(row) for row in token_rows(self.service.database, run_id, first, count)]

    def predictions(self, run_id: str, first: int = 0, count: int = 500) -> list:
        """The five most probable tokens at every place under full attention and under Focus, with probabilities.

        Args:
            run_id: as listed by runs.
            first: position of the first token.
            count: number of tokens, at most 5000.

        Returns:
            For each token and mode (full, focus): position, rank of the real token (from 1), pieces and probabilities,
            most probable first; empty for a run stored before 0.2.
        """
        return [plain(row) for row in prediction_rows(self.service.database, run_id, first, count)]

    def compare(self, first: str, second: str) -> dict:
        """The numbers of two runs side by side, and the settings that differ.

        Args:
            first: id of a run.
            second: id of another run.
        """
        return dict(compare_numbers(self.service, first, second))

    def sql(self, query: str) -> dict:
        """Answer one SELECT statement (DuckDB) over the database; read-only, at most 10 seconds and 1000 rows.

        Args:
            query: one SELECT statement; docs/schema.md describes the tables.
        """
        return dict(run_sql(self.service.database, query))

    def _table(self, run_id: str, name: str) -> list:
        return [plain(row) for row in table(self.service.database, run_id, name).to_pylist()]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON-ready values: times as text."""
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in row.items()}


def functions(service: Service) -> dict[str, Callable[..., Any]]:
    """Name -> function."""
    made = RunFunctions(service)
    return {
        "runs": made.runs,
        "run": made.run,
        "groups": made.groups,
        "layers": made.layers,
        "tokens": made.tokens,
        "predictions": made.predictions,
        "compare": made.compare,
        "sql": made.sql,
    }
