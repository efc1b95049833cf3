"""Pieces that characterise a group."""

from __future__ import annotations

from focus_explorer.statistics.groups import characteristic_table


def test_pieces_that_make_a_group(sample):
    pieces = [row for row in characteristic_table(sample).to_pylist() if row["kind"] == "characteristic"]
    assert {row["group"] for row in pieces if row["layer"] == 3} == set("ABCD")
    assert all(row["q_value"] <= 0.05 and row["z"] > 0 and row["uses"] >= 2 for row in pieces)
