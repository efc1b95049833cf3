"""The mask of a layer as a file: the pairs of the dense rule, in each format, and refusals in one line."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse
import torch

from focus_explorer.cli.main import main
from focus_explorer.data.parts import executed
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import Cancelled
from focus_explorer.exports.mask import write_mask
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.rule import CAUSES, PairRule


@pytest.fixture(params=["whole", "sliding"])
def run(request, service, run_id, sliding_run):
    """(run, the rule of its layers)"""
    return (run_id, PairRule(8, 2)) if request.param == "whole" else (sliding_run, PairRule(8, 2, 24))


def allowed(service, run_id, rule, layer=1):
    bits = executed(service.database, fetch_run(service.database, run_id), layer)[layer][0].membership
    bits = torch.from_numpy(bits.copy())
    position = torch.arange(bits.numel())
    return allowed_pairs(bits, bits, position, position, rule).numpy()


@pytest.mark.slow
def test_parquet_and_csv_have_the_pairs_of_the_rule(service, run, tmp_path):
    run_id, rule = run
    expected = allowed(service, run_id, rule)
    table = pyarrow.parquet.read_table(write_mask(service.database, run_id, 1, "parquet", tmp_path / "a.parquet"))
    assert list(zip(table["query"].to_pylist(), table["key"].to_pylist(), strict=True)) == [
        tuple(pair) for pair in np.argwhere(expected).tolist()
    ]
    about = json.loads(table.schema.metadata[b"focus_explorer"])
    assert (about["run_id"], about["layer"], about["causes"]) == (run_id, "1", list(CAUSES))
    written = pyarrow.csv.read_csv(write_mask(service.database, run_id, 1, "csv", tmp_path / "a.csv"))
    assert written.to_pylist() == table.to_pylist()


def test_the_matrix_is_what_scipy_reads(service, run, tmp_path):
    run_id, rule = run
    path = write_mask(service.database, run_id, 1, "npz", tmp_path / "a.npz", rows=(20, 90))
    matrix = scipy.sparse.load_npz(path)
    expected = allowed(service, run_id, rule)
    expected[:20], expected[90:] = False, False
    np.testing.assert_array_equal(matrix.toarray() != 0, expected)
    counted = fetch(service.database, "layers", run_id=run_id).to_pylist()[1]
    whole = scipy.sparse.load_npz(write_mask(service.database, run_id, 1, "npz", tmp_path / "b.npz"))
    counts = np.bincount(whole.data, minlength=len(CAUSES) + 1)[1:]
    assert counts.tolist() == [counted[name] if name != "dropped" else 0 for name in CAUSES]


def test_the_view_of_the_database_says_the_same(service, run, tmp_path):
    run_id, _ = run
    with service.database.read() as connection:
        rows = connection.execute(
            "SELECT query, key, cause FROM pairs WHERE run_id = ? AND layer = 1 AND query BETWEEN 30 AND 70 "
            "ORDER BY query, key",
            [run_id],
        ).fetchall()
    kept = [row for row in rows if row[2] != "dropped"]
    table = pyarrow.parquet.read_table(
        write_mask(service.database, run_id, 1, "parquet", tmp_path / "a.parquet", rows=(30, 71))
    )
    assert kept == [tuple(row.values()) for row in table.to_pylist()]
    assert len(rows) == sum(range(31, 72))


def test_the_command_writes_it(service, run_id, tmp_path, capsys):
    words = ["export", run_id, "--what", "mask", "--db", str(service.database.path), "--out"]
    assert main([*words, str(tmp_path / "m.parquet"), "--layer", "0", "--rows", "5:9"]) == 0
    assert set(pyarrow.parquet.read_table(tmp_path / "m.parquet")["query"].to_pylist()) == {5, 6, 7, 8}
    wrong = {
        ("m.parquet",): "name it with --layer",
        ("m.tex", "--layer", "0"): "does not say which format",
        ("m.npz", "--layer", "9"): "no layer 9",
        ("m.npz", "--layer", "0", "--rows", "5"): "expected A:B",
        ("m.npz", "--layer", "0", "--rows", "9:5"): "0 <= A < B",
    }
    for (name, *more), message in wrong.items():
        assert main([*words, str(tmp_path / name), *more]) == 2
        assert message in capsys.readouterr().err
    words[3] = "tokens"
    assert main([*words, str(tmp_path / "t.csv"), "--rows", "1:4"]) == 2
    assert "about the mask" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.parquet"]


def test_a_long_mask_can_be_stopped(service, run_id, tmp_path, monkeypatch):
    monkeypatch.setattr("focus_runtime.mask.counts.CELLS_AT_ONCE", 1 << 12)
    done = []
    write_mask(service.database, run_id, 1, "npz", tmp_path / "a.npz", progress=lambda _, part: done.append(part))
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 1)
    assert len(done) > 40

    def stopping(stage, fraction):
        if fraction > 0.5:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        write_mask(service.database, run_id, 1, "npz", tmp_path / "b.npz", progress=stopping)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_the_same_mask_has_the_same_bytes_whenever_it_is_written(service, run_id, tmp_path, monkeypatch):
    first = write_mask(service.database, run_id, 1, "npz", tmp_path / "a.npz").read_bytes()
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert write_mask(service.database, run_id, 1, "npz", tmp_path / "b.npz").read_bytes() == first
    compressed = zipfile.ZipFile(tmp_path / "b.npz").getinfo("indices.npy")
    assert compressed.compress_size < compressed.file_size / 2
