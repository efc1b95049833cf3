"""Differences between two tables are named with their number and size."""

from __future__ import annotations

import pyarrow as pa

from focus_explorer.exports.bundle.differences import of_cells


def test_cells_are_compared():
    old = pa.table({"a": [1.0, 2.0, float("nan"), None], "b": ["x", "y", "z", "z"], "gone": [1, 2, 3, 4]})
    new = pa.table({"a": [1.0, 2.5, float("nan"), 4.0], "b": ["x", "y", "z", "w"]})
    assert of_cells(old, new) == [
        "columns only in the bundle: gone",
        "column a: 2 of 4 cells differ, by at most 0.5 (first in row 2: 2.0 in the bundle, 2.5 here)",
        "column b: 1 of 4 cells differ (first in row 4: z in the bundle, w here)",
    ]
    assert of_cells(old, old) == []
    assert of_cells(old, old.slice(1)) == ["4 rows in the bundle, 3 here"]
