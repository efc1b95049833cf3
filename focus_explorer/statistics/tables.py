"""The statistics of a run as tables, by name; screen, exports, reports and bundles all take them from here."""

from __future__ import annotations

import pyarrow as pa

from focus_explorer.errors import InputError
from focus_runtime.store.database import Database

NAMES = ("statistics", "characteristic", "categories", "agreement", "distances", "links", "pairs")


def statistics_table(database: Database, run_id: str, name: str) -> pa.Table:
    """One of `NAMES`.

    Raises:
        InputError: unknown table or run.
    """
    if name not in NAMES:
        raise InputError(f"there are no statistics {name!r}", expected=" or ".join(NAMES))
    raise NotImplementedError  # being written in this very change
