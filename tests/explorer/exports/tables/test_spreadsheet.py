"""A spreadsheet runs no cell of an exported CSV file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from focus_explorer.exports.tables.write import escape_formulas


def test_no_cell_is_a_formula():
    texts = ["=cmd|' /C calc'!A0", "+1", "-2", "@x", "\tx", "\rx", "a=b", " =1", "", None, "'=1", "é"]
    rows = pa.table({"piece": texts, "number": [-1.5] * len(texts)})
    escaped = escape_formulas(rows)
    assert escaped["piece"].to_pylist() == ["'" + t if t and t[0] in "=+-@\t\r" else t for t in texts]
    assert escaped["number"].equals(rows["number"])
    assert escaped.schema == rows.schema
