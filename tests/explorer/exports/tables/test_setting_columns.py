"""The setting in every row of an exported table: all that decides which pairs attend, and a long budget once."""

from __future__ import annotations

import csv
import hashlib
import json

import pyarrow.parquet
import pytest

from focus_explorer.data.queries import fetch_run
from focus_explorer.exports.tables import sources
from focus_explorer.exports.tables.write import table, write_table

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("rows_at_once", [10**9, 7])
def test_a_budget_is_written_once_and_named_in_every_row(service, budget_run, tmp_path, monkeypatch, rows_at_once):
    monkeypatch.setattr(sources, "ROWS_AT_ONCE", rows_at_once)
    budget = json.loads(fetch_run(service.database, budget_run)["config"])["budget"]
    text = json.dumps(budget)
    name = f"{len(budget)} exceptions {hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def written(file_format, **chosen):
        out = tmp_path / f"{rows_at_once}.{file_format}"
        return write_table(service.database, budget_run, "assignments", file_format, out, **chosen)

    with written("csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["budget"] for row in rows] == [text] + [""] * (len(rows) - 1)
    of_json = json.loads(written("json", layer=1, rows=9).read_text(encoding="utf-8"))
    assert [row["budget"] for row in of_json] == [text] + [None] * 8
    of_parquet = pyarrow.parquet.read_table(written("parquet")).to_pylist()
    assert {row["budget"] for row in of_parquet} == {text}
    assert {row["budget_id"] for row in [*rows, *of_json, *of_parquet]} == {name}
    assert [int(row["membership"]) for row in rows] == [row["membership"] for row in of_parquet]


def test_text_sinks_and_factors_are_part_of_the_setting(service, run_id, monkeypatch, tmp_path):
    run = fetch_run(service.database, run_id)
    config = json.loads(run["config"])
    assert not {"text_sinks", "logit_factors"} & set(table(service.database, run_id, "groups").column_names)
    config |= {"text_sinks": 0.75, "text_sinks_from": 0, "logit_factors": True}
    monkeypatch.setattr(sources, "fetch_run", lambda *_: run | {"config": json.dumps(config)})
    for row in table(service.database, run_id, "groups").to_pylist():
        assert (row["text_sinks"], row["text_sinks_from"], row["logit_factors"]) == (0.75, 0, True)
    read = write_table(service.database, run_id, "groups", "markdown", tmp_path / "groups.md").read_text()
    assert ", text sinks from a cosine similarity of 0.75, factors of the logits." in read
