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


@pytest.mark.parametrize("rows_at_once", [10**9, 7])
def test_heads_with_other_groups_export_theirs(service, budget_run, run_id, monkeypatch, rows_at_once):
    monkeypatch.setattr(sources, "ROWS_AT_ONCE", rows_at_once)
    usual = table(service.database, budget_run, "assignments").to_pylist()
    own = table(service.database, budget_run, "head_assignments").to_pylist()
    pieces = {row["position"]: row["piece"] for row in usual}
    assert all(row["piece"] == pieces[row["position"]] for row in own)
    heads = table(service.database, budget_run, "heads").to_pylist()
    different = 0
    for part in heads:
        key = (part["layer"], part["part"])
        members = [row["membership"] for row in own if (row["layer"], row["part"]) == key]
        different += bool(members)
        members = members or [row["membership"] for row in usual if row["layer"] == part["layer"]]
        assert {row["heads"] for row in own if (row["layer"], row["part"]) == key} <= {part["heads"]}
        together = sum(bool(q & k) for number, q in enumerate(members) for k in members[: number + 1])
        assert together == part["group_only"] + part["local_and_group"]
    assert different == 4  # layer 0 in full, two of three parts of layer 1, layer 3
    alike = table(service.database, run_id, "head_assignments")
    assert alike.num_rows == 0
    assert set(alike.column_names) >= {"layer", "part", "heads", "position", "piece", "membership"}
