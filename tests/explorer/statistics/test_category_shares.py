"""Shares of categories in groups."""

from __future__ import annotations

from focus_explorer.statistics.category_shares import categories_table


def test_categories_that_make_a_group(sample):
    rows = [row for row in categories_table(sample).to_pylist() if row["layer"] == 3 and row["share"] == 1]
    assert len(rows) == 4
    assert all(row["z"] > 10 and row["q_value"] < 1e-6 and row["low"] == row["high"] == 1 for row in rows)
