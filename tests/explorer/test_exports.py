"""Exported tables read back to what the queries said, and LaTeX is escaped."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow.parquet
import pytest

from focus_explorer.errors import InputError
from focus_explorer.exports.tables import FORMATS, WHAT, group_label, table


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("file_format", FORMATS)
def test_every_table_in_every_format(tmp_path, service, run_id, what, file_format):
    path = service.export(run_id, what, file_format, tmp_path / "out")
    rows = table(service.database, run_id, what)
    assert list(tmp_path.iterdir()) == [path]
    if file_format == "csv":
        found = pd.read_csv(path, keep_default_na=False, na_values=[""] if what != "tokens" else [])
        assert list(found.columns) == rows.column_names
        assert len(found) == rows.num_rows
    elif file_format == "json":
        assert json.loads(path.read_text()) == rows.to_pylist()
    elif file_format == "parquet":
        stored = pyarrow.parquet.read_table(path)
        assert stored.to_pylist() == rows.to_pylist()
        assert json.loads(stored.schema.metadata[b"focus_explorer"])["run_id"] == run_id
    else:
        text = path.read_text()
        assert text.count(r"\toprule") >= 1
        assert r"\caption{" in text
        assert "<script>" not in text or what == "tokens"
        assert all(line.count("&") <= 10 for line in text.splitlines())


def test_groups_have_denominators_and_settings(service, run_id):
    rows = table(service.database, run_id, "groups").to_pylist()
    by_layer = {}
    for row in rows:
        assert row["share"] == row["tokens"] / row["num_tokens"]
        assert row["num_groups"] == 4
        assert row["top_k"] == 1
        by_layer.setdefault(row["layer"], []).append(row["tokens"])
    assert all(sum(tokens) == rows[0]["num_tokens"] for tokens in by_layer.values())


def test_latex_escapes_tokens(tmp_path, service, run_id):
    text = service.export(run_id, "tokens", "latex", tmp_path / "t.tex").read_text()
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert r"\&" in body
    assert '" &"' not in body


def test_unwritable_and_unknown_are_named(tmp_path, service, run_id):
    blocker = tmp_path / "file"
    blocker.write_text("x")
    with pytest.raises(InputError, match="cannot write"):
        service.export(run_id, "groups", "csv", blocker / "out.csv")
    with pytest.raises(InputError, match="no table 'everything'"):
        service.export(run_id, "everything", "csv", tmp_path / "o")
    with pytest.raises(InputError, match="no format 'xls'"):
        service.export(run_id, "groups", "xls", tmp_path / "o")
    with pytest.raises(InputError, match="no run"):
        service.export("nope", "groups", "csv", tmp_path / "o")
    assert list(tmp_path.iterdir()) == [blocker]


def test_group_labels():
    assert [group_label(i) for i in (0, 25, 26, 51, 52, 62)] == ["A", "Z", "AA", "AZ", "BA", "BK"]
