"""Rows of a query as dictionaries."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from focus_explorer.data.queries import rows_of


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", None])
def test_rows_are_those_of_arrow(zone):
    moments = [datetime(2026, 7, 1, 12, 0, 0, 123456), datetime(1950, 1, 1, 0, 0, 0, 500000), None]
    if zone is not None:
        moments = [moment and moment.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)) for moment in moments]
    table = pa.table(
        {"at": pa.array(moments, pa.timestamp("us", zone)), "tags": [["a"], [], None], "number": [1.5, None, 2.0]}
    )
    assert rows_of(table) == table.to_pylist()
    assert [str(row["at"]) for row in rows_of(table)] == [str(row["at"]) for row in table.to_pylist()]
    assert rows_of(table.slice(0, 0)) == []
