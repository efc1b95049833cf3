"""Exported tables read back to what the queries said; a spreadsheet runs none of their cells; large ones stream."""

from __future__ import annotations

import csv
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.exports.tables import sources
from focus_explorer.exports.tables.markdown import markdown_table
from focus_explorer.exports.tables.spreadsheet import harmless
from focus_explorer.exports.tables.write import FORMATS, SUFFIXES, WHAT, group_label, table, write_table
from focus_explorer.services.labels import delete_run, undelete_run

SLOW = ("statistics", "agreement", "distances")  # compute intervals; one of them stands for all below
QUICK = [what for what in WHAT if what not in SLOW]


@pytest.fixture(scope="module")
def tables(service, run_id):
    return {what: table(service.database, run_id, what) for what in [*QUICK, "distances"]}


@pytest.mark.parametrize("file_format", ["csv", "json", "parquet"])
def test_every_table_reads_back(tmp_path, service, run_id, tables, file_format):
    for what, rows in tables.items():
        path = write_table(service.database, run_id, what, file_format, tmp_path / f"{what}.out", raw=True)
        if file_format == "csv":
            with path.open(newline="", encoding="utf-8") as file:
                header, *found = csv.reader(file)
            assert header == rows.column_names, what
            assert len(found) == rows.num_rows, what
            if "piece" in header:
                assert [line[header.index("piece")] for line in found] == rows["piece"].to_pylist()
        elif file_format == "json":
            assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(rows.to_pylist())), what
        else:
            stored = pyarrow.parquet.read_table(path)
            assert stored.equals(rows), what
            about = json.loads(pyarrow.parquet.read_metadata(path).metadata[b"focus_explorer"])
            assert (about["run_id"], about["table"]) == (run_id, what)
            assert about["text_sha256"] == fetch(service.database, "run", run_id=run_id)["text_sha256"][0].as_py()
            assert not {"title", "note"} & set(about)  # a title is a piece of the text
    assert {path.name for path in tmp_path.iterdir()} == {f"{what}.out" for what in tables}


def test_a_table_for_reading_is_cut_and_says_so(tmp_path, service, run_id, tables):
    for file_format in ("latex", "markdown"):
        for what in tables:
            text = write_table(service.database, run_id, what, file_format, tmp_path / "t", rows=5).read_text()
            total = tables[what].num_rows
            assert (f"The first 5 of {total:,} rows." in text) == (total > 5), what
            assert ("No rows." in text) == (total == 0), what


def test_groups_have_denominators_and_settings(tables):
    by_layer = {}
    for row in tables["groups"].to_pylist():
        assert row["share"] == row["tokens"] / row["num_tokens"]
        assert (row["num_groups"], row["top_k"]) == (4, 1)
        assert row["label"] == group_label(row["group_index"])
        by_layer.setdefault(row["layer"], []).append(row["tokens"])
    assert all(sum(tokens) == tables["tokens"].num_rows for tokens in by_layer.values())


def test_large_tables_stream_to_the_same_rows(tmp_path, service, run_id, tables, monkeypatch):
    database = service.database
    for rows_at_once in (10**9, 1000, 64):  # all layers at once, layer by layer, and parts of a layer
        monkeypatch.setattr(sources, "ROWS_AT_ONCE", rows_at_once)
        pieces = list(sources.read(database, run_id, "assignments"))
        assert (len(pieces) > 1) == (rows_at_once < 10**9)
        assert pa.concat_tables(pieces).equals(tables["assignments"])
        assert table(database, run_id, "tokens").equals(tables["tokens"])
        path = write_table(database, run_id, "assignments", "parquet", tmp_path / "a.parquet")
        assert pyarrow.parquet.read_table(path).equals(tables["assignments"])
    stored = fetch(database, "assignments", run_id=run_id)
    for name in ("layer", "position", "membership", "top_group"):
        assert tables["assignments"][name].to_pylist() == stored[name].to_pylist()
    positions, texts = (fetch(database, "tokens", run_id=run_id)[name].to_pylist() for name in ("position", "piece"))
    text = dict(zip(positions, texts, strict=True))
    assert all(row["piece"] == text[row["position"]] for row in tables["assignments"].to_pylist())


def test_rows_and_layer_choose(tmp_path, service, run_id):
    out = tmp_path / "x.csv"
    write_table(service.database, run_id, "assignments", "csv", out, layer=1, rows=7)
    found = pyarrow.csv.read_csv(out)
    assert found["layer"].to_pylist() == [1] * 7
    assert found["position"].to_pylist() == list(range(7))
    with pytest.raises(InputError, match="no layer 9"):
        write_table(service.database, run_id, "groups", "csv", tmp_path / "y", layer=9)
    with pytest.raises(InputError, match="tokens has no layers"):
        write_table(service.database, run_id, "tokens", "csv", tmp_path / "y", layer=0)
    with pytest.raises(InputError, match="rows is 0"):
        write_table(service.database, run_id, "tokens", "csv", tmp_path / "y", rows=0)
    assert list(tmp_path.iterdir()) == [out]


def test_no_cell_is_a_formula():
    texts = ["=cmd|' /C calc'!A0", "+1", "-2", "@x", "\tx", "\rx", "a=b", " =1", "", None, "'=1", "é"]
    rows = pa.table({"piece": texts, "number": [-1.5] * len(texts)})
    found = harmless(rows)
    assert found["piece"].to_pylist() == ["'" + t if t and t[0] in "=+-@\t\r" else t for t in texts]
    assert found["number"].equals(rows["number"])
    assert found.schema == rows.schema


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


def test_what_cannot_be_exported_is_named(tmp_path, service, run_id, capsys):
    blocker = tmp_path / "file"
    blocker.write_text("x")
    with pytest.raises(InputError, match="cannot write"):
        write_table(service.database, run_id, "groups", "csv", blocker / "out.csv")
    with pytest.raises(InputError, match="no table 'everything'"):
        write_table(service.database, run_id, "everything", "csv", tmp_path / "o")
    with pytest.raises(InputError, match="no format 'xls'"):
        write_table(service.database, run_id, "groups", "xls", tmp_path / "o")
    with pytest.raises(InputError, match="no run"):
        write_table(service.database, "nope", "groups", "csv", tmp_path / "o")
    delete_run(service, run_id)
    try:
        with pytest.raises(InputError, match="was deleted; bring it back"):
            write_table(service.database, run_id, "groups", "csv", tmp_path / "o")
    finally:
        undelete_run(service, run_id)
    command = ["export", run_id, "--what", "layers", "--db", str(service.database.path), "--out"]
    assert main([*command, str(tmp_path / "o.xls")]) == 2
    assert "does not say which format" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "o.json"), "--raw"]) == 2
    assert list(tmp_path.iterdir()) == [blocker]
    capsys.readouterr()
    assert main([*command, str(tmp_path / "o.MD")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "o.MD")


def test_the_command_lists_what_there_is(capsys):
    for command, names in (("export", [*WHAT, *FORMATS]), ("figure", ["group_sizes", "neurips", "svg"])):
        with pytest.raises(SystemExit) as end:
            main([command, "--list"])
        assert not end.value.code
        listed = capsys.readouterr().out
        assert all(name in listed for name in names)
    assert set(SUFFIXES) == set(FORMATS)


def test_group_labels():
    assert [group_label(i) for i in (0, 25, 26, 51, 52, 62)] == ["A", "Z", "AA", "AZ", "BA", "BK"]
