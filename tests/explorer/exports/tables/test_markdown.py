"""Markdown tables keep their columns whatever the tokens are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from focus_explorer.exports.tables.reading import markdown_table


def test_markdown_keeps_its_columns():
    pieces = ["|", "a|b", "`x`", "<b>", "\n", "*", "\\|", "🙂"]
    rows = pa.table({"position": list(range(8)), "piece": pieces, "nll_full": [None, *[-0.00001] * 7]})
    for key, value in {
        "run_id": "r",
        "model_id": "m|x",
        "centroids": "c",
        "num_groups": 4,
        "top_k": 1,
        "window": 8,
        "num_sinks": 2,
        "assignment": "causal",
    }.items():
        rows = rows.append_column(key, pa.array([value] * 8))
    lines = markdown_table(rows, "tokens", 8).splitlines()
    body = [line for line in lines if line.startswith("| ")]
    assert len(body) == 10
    assert all(line.replace("\\|", "").count("|") == 4 for line in body)
    assert "<b>" not in "".join(lines)
    assert body[2].endswith("| – |")
    assert body[3].endswith("| 0.000 |")  # not -0.000
