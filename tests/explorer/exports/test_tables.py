"""Exported tables read back to what the queries said, with their setting; a spreadsheet runs none of their cells."""

from __future__ import annotations

import csv
import hashlib
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from focus_explorer.cli.main import main
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.exports.tables import sources
from focus_explorer.exports.tables.sources import TABLES, repeated, text_array
from focus_explorer.exports.tables.write import escape_formulas, table, write_table
from focus_explorer.usecases.labels import delete_run, undelete_run
from focus_runtime.mask.rule import group_label

pytestmark = pytest.mark.slow

SLOW = ("statistics", "agreement", "distances")  # compute intervals; one of them stands for all below
QUICK = [what for what in TABLES if what not in SLOW]


@pytest.fixture(scope="module")
def tables(service, run_id):
    with service.database.read():  # opened once for all: opening takes longer than most of the tables
        return {what: table(service.database, run_id, what) for what in [*QUICK, "distances"]}


@pytest.fixture
def opened(service):
    with service.database.read():
        yield


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("file_format", ["csv", "json", "parquet"])
def test_every_table_reads_back(tmp_path, service, run_id, tables, file_format):
    for what, rows in tables.items():
        path = write_table(service.database, run_id, what, file_format, tmp_path / f"{what}.out", raw=True)
        if file_format == "csv":
            with path.open(newline="", encoding="utf-8") as file:
                header, *lines = csv.reader(file)
            assert header == rows.column_names, what
            assert len(lines) == rows.num_rows, what
            if "piece" in header:
                assert [line[header.index("piece")] for line in lines] == rows["piece"].to_pylist()
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


@pytest.mark.usefixtures("opened")
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
        assert (row["num_groups"], row["top_k"]) == (8, 1)
        assert row["label"] == group_label(row["group_index"])
        by_layer.setdefault(row["layer"], []).append(row["tokens"])
    assert all(sum(tokens) == tables["tokens"].num_rows for tokens in by_layer.values())


@pytest.mark.usefixtures("opened")
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
    read_back = pyarrow.csv.read_csv(out)
    assert read_back["layer"].to_pylist() == [1] * 7
    assert read_back["position"].to_pylist() == list(range(7))
    with pytest.raises(InputError, match="no layer 9"):
        write_table(service.database, run_id, "groups", "csv", tmp_path / "y", layer=9)
    with pytest.raises(InputError, match="tokens has no layers"):
        write_table(service.database, run_id, "tokens", "csv", tmp_path / "y", layer=0)
    with pytest.raises(InputError, match="rows is 0"):
        write_table(service.database, run_id, "tokens", "csv", tmp_path / "y", rows=0)
    assert list(tmp_path.iterdir()) == [out]


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


def test_a_budget_is_written_once_and_named_in_every_row(service, budget_run, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS_AT_ONCE", 97)  # several pieces of every layer
    budget = json.loads(fetch_run(service.database, budget_run)["config"])["budget"]
    text = json.dumps(budget)
    name = f"{len(budget)} exceptions {hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def written(file_format, **chosen):
        out = tmp_path / f"a.{file_format}"
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


@pytest.mark.parametrize("rows_at_once", [10**9, 97])
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


def test_no_cell_is_a_formula():
    texts = ["=cmd|' /C calc'!A0", "+1", "-2", "@x", "\tx", "\rx", "a=b", " =1", "", None, "'=1", "é"]
    rows = pa.table({"piece": texts, "number": [-1.5] * len(texts)})
    escaped = escape_formulas(rows)
    assert escaped["piece"].to_pylist() == ["'" + t if t and t[0] in "=+-@\t\r" else t for t in texts]
    assert escaped["number"].equals(rows["number"])
    assert escaped.schema == rows.schema


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "é日本🙂", "b\x00c"]])
def test_texts_are_kept(texts):
    made = text_array(texts)
    made.validate(full=True)
    assert made.equals(pa.array(texts, pa.string()))


def test_a_long_text_in_many_rows_needs_little_memory():
    """Their bytes together are more than the offsets of one array of strings can count."""
    made = repeated("x" * 12_000, 600_000)
    assert max(chunk.nbytes for chunk in made.chunks) < 2 * sources.CHUNK_BYTES
    assert (len(made), made[-1].as_py()) == (600_000, "x" * 12_000)
