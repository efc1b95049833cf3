"""Statistics of a stored run or corpus, for the command line and the API."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from focus_explorer.statistics import run_statistics
from focus_explorer.statistics.run_statistics import RunStatistics
from focus_explorer.usecases.service import Service


def computed_statistics(service: Service, run_id: str) -> RunStatistics:
    """The statistics of a run or corpus, computed when a table is read for the first time.

    Raises:
        NotFoundError: there is none of this id.
    """
    return run_statistics.run_statistics(service.database, run_id)


def statistics_rows(service: Service, run_id: str, name: str) -> list[dict[str, Any]]:
    """The rows of one table of statistics.

    Args:
        service: whose database has the run.
        run_id: of a run or a corpus.
        name: one of `statistics.names.NAMES`.

    Raises:
        InputError: there is no such run or table.
    """
    rows: list[dict[str, Any]] = run_statistics.statistics_table(service.database, run_id, name).to_pylist()
    return rows


def agreement_table(service: Service, run_id: str, other_id: str) -> pa.Table:
    """Agreement of two runs of the same tokens, a row for each layer they share.

    Args:
        service: whose database has both runs.
        run_id: of one run.
        other_id: of the other run.

    Raises:
        InputError: a run does not exist, or their tokens differ.
    """
    return run_statistics.agreement_between(service.database, run_id, other_id)
