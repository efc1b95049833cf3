"""What was run is what is read back; a crash, a lock, a foreign or newer file leave nothing half-done."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import duckdb
import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig, TextOptions
from focus_runtime.errors import StoreError
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.mask.rule import CAUSES
from focus_runtime.routing.centroids import random_centroids
from focus_runtime.run.text import analyze
from focus_runtime.store.database import Database
from focus_runtime.store.measurements import write_projection
from focus_runtime.store.runs import write_run
from tests.helpers import build_model, build_tokenizer, mass_kept

TABLES = {"runs", "tokens", "assignments", "masks", "layers", "losses", "timings", "projections", "centroid_files"}


@pytest.fixture(scope="module")
def trace():
    model = build_model(vocab_size=512)
    centroids = random_centroids(model, FocusConfig(num_groups=3, top_k=2, window=5, num_sinks=1))
    calibrate_potentials(model, centroids, torch.randint(0, 300, (1, 64)))
    return analyze(model, build_tokenizer(), "a small text, twice. " * 8, centroids, TextOptions(repeats=2))


@pytest.fixture(scope="module")
def stored(trace, migrated, tmp_path_factory):
    """The file of a database with one run."""
    path = shutil.copy(migrated, tmp_path_factory.mktemp("stored") / "a.duckdb")
    write_run(Database(path), trace)
    return path


@pytest.fixture
def path(stored, tmp_path):
    return shutil.copy(stored, tmp_path / "stored.duckdb")


def test_run_reads_back_exactly(database, trace):
    run_id = write_run(database, trace, command="x")
    with database.read() as connection:
        pieces = connection.execute("SELECT piece FROM tokens WHERE run_id = ? ORDER BY position", [run_id]).fetchall()
        assert [row[0] for row in pieces] == trace.tokens.pieces
        for layer in trace.layers:
            rows = connection.execute(
                "SELECT membership, top_group, probabilities, routing FROM assignments "
                "WHERE layer = ? ORDER BY position",
                [layer.layer],
            ).fetchall()
            assert [row[0] for row in rows] == layer.membership.tolist()
            assert [row[1] for row in rows] == layer.top_group.tolist()
            np.testing.assert_array_equal(np.array([row[2] for row in rows], np.float32), layer.probabilities)
            np.testing.assert_array_equal(np.array([row[3] for row in rows], np.float32), layer.routing)
            sums = connection.execute(
                f"SELECT {', '.join(f'sum({c})' for c in CAUSES)} FROM masks WHERE layer = ?", [layer.layer]
            ).fetchone()
            assert list(map(int, sums)) == [layer.heads[0].counts.total(cause) for cause in CAUSES]
            assert sum(map(int, sums)) == trace.num_tokens * (trace.num_tokens + 1) // 2
        nll = connection.execute("SELECT nll FROM losses WHERE mode = 'focus' ORDER BY position").fetchall()
        np.testing.assert_array_equal([row[0] for row in nll], trace.nll["focus"])
        assert connection.execute("SELECT count(*) FROM timings").fetchone()[0] == len(trace.timings)


BUDGET = [
    {"layer": 0, "full": True},
    {"layer": 1, "head": 0, "top_k": 2, "window": 2},
    {"layer": 1, "head": 2, "full": True},
]


@pytest.mark.slow
@pytest.mark.parametrize("growth", [None, (10, 30)])
def test_a_run_says_what_every_head_executed(database, growth):
    """Block counts, single pairs and settings by part."""
    model = build_model(vocab_size=512, num_attention_heads=8, num_key_value_heads=4, num_hidden_layers=3)
    config = FocusConfig(num_groups=4, top_k=1, window=5, num_sinks=1, budget=BUDGET, window_growth=growth)
    centroids = random_centroids(model, config)
    calibrate_potentials(model, centroids, torch.randint(0, 300, (1, 64)))
    trace = analyze(model, build_tokenizer(), "a small text, twice. " * 4, centroids, TextOptions(repeats=1))
    assert "full attention" in trace.info["backend"]
    assert not any("budget" in note for note in trace.notes)  # its words stand with the settings, not as a warning
    run_id = write_run(database, trace)
    length, pairs = trace.num_tokens, trace.num_tokens * (trace.num_tokens + 1) // 2
    with database.read() as connection:
        said = connection.execute(
            "SELECT layer, part, heads, top_k, window_size, full_attention, retained_pairs FROM head_masks "
            "WHERE run_id = ? ORDER BY layer, part",
            [run_id],
        ).fetchall()
        assert [row[:6] for row in said] == [
            (0, 0, [0, 1, 2, 3], None, None, True),
            (1, 0, [0], 2, 2, False),
            (1, 1, [1, 3], 1, 5, False),
            (1, 2, [2], None, None, True),
            (2, 0, [0, 1, 2, 3], 1, 5, False),
        ]
        for layer, part, _, top_k, window, full, retained in said:
            probabilities = next(one.probabilities for one in trace.layers if one.layer == layer)
            order = np.argsort(-probabilities, axis=1, kind="stable")[:, : top_k or 1]
            groups = (1 << order.astype(np.int64)).sum(axis=1)
            i, j = np.tril_indices(length)
            times = np.clip(i, *growth) if growth else 1
            near = i - j <= (5 if full else window) * times // (growth or (1,))[0]
            shared = full | ((groups[i] & groups[j]) != 0)
            allowed = near | shared | (j < 1)
            assert retained == pytest.approx(allowed.mean())
            where = "WHERE run_id = ? AND layer = ? AND part = ?"
            totals = connection.execute(
                f"SELECT {', '.join(f'sum({cause})' for cause in CAUSES)} FROM masks {where}", [run_id, layer, part]
            ).fetchone()
            single = dict(
                connection.execute(
                    f"SELECT cause, count(*) FROM pairs {where} GROUP BY cause", [run_id, layer, part]
                ).fetchall()
            )
            assert list(map(int, totals)) == [single.get(cause, 0) for cause in CAUSES]
            assert int(totals[CAUSES.index("dropped")]) == pairs - int(allowed.sum())
        mean = connection.execute("SELECT layer, retained_pairs FROM layers ORDER BY layer").fetchall()
    by_head = [row[6] for row in said]
    assert dict(mean) == pytest.approx({0: 1.0, 1: (by_head[1] + 2 * by_head[2] + by_head[3]) / 4, 2: by_head[4]})


def test_the_attention_mass_is_stored_when_it_was_measured(database, trace):
    model = build_model(vocab_size=512)
    centroids = random_centroids(model, FocusConfig(num_groups=3, top_k=1, window=5, num_sinks=1))
    calibrate_potentials(model, centroids, torch.randint(0, 300, (1, 64)))
    options = TextOptions(repeats=1, attention_mass=True)
    text = "a small text, twice. " * 8
    measured = analyze(model, build_tokenizer(), text, centroids, options)
    focus = compose(model, centroids)
    ids = torch.tensor([measured.tokens.ids])
    expected = mass_kept(focus, ids)
    focus.detach()
    query = "SELECT attention_mass_retained FROM layers WHERE run_id = ? ORDER BY layer"
    for run, values in ((measured, expected.tolist()), (trace, [None, None])):
        run_id = write_run(database, run)
        with database.read() as connection:
            stored = [row[0] for row in connection.execute(query, [run_id]).fetchall()]
        assert stored == (values if values[0] is None else pytest.approx(values, abs=1e-9))
    assert 0.2 < expected.min() <= expected.max() < 1.0


def test_a_failed_write_leaves_no_run(database, trace, monkeypatch):
    monkeypatch.setattr("focus_runtime.store.runs._timings", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_run(database, trace)
    with database.read() as connection:
        assert all(connection.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,) for name in TABLES)


def test_newer_database_is_refused_and_unchanged(path, trace):
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES ('9999_future', now())")
    with pytest.raises(StoreError, match="newer version"), Database(path).read():
        pass
    with pytest.raises(StoreError, match="newer version"):
        write_run(Database(path), trace)


def test_foreign_files_are_refused(tmp_path):
    text = tmp_path / "notes.duckdb"
    text.write_text("not a database, just notes " * 500)
    with pytest.raises(StoreError, match=r"no DuckDB file|cannot be used"), Database(text).read():
        pass
    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE runs (x INTEGER)")
    for use in (Database(other).read, Database(other).write):
        with pytest.raises(StoreError, match="without Focus Explorer's tables"), use():
            pass
    with duckdb.connect(str(other)) as connection:
        assert connection.execute("SELECT count(*) FROM information_schema.tables").fetchone() == (1,)


@pytest.mark.slow
@pytest.mark.parametrize("use", ["read", "write"])
def test_a_file_whose_creation_was_killed_is_a_new_one(tmp_path, trace, use):
    path = tmp_path / "killed.duckdb"
    duckdb.connect(str(path)).close()  # a header and no table
    with pytest.raises(StoreError, match="without Focus Explorer's tables"), Database(path).read(migrates=False):
        pass
    with getattr(Database(path), use)() as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    write_run(Database(path), trace)


@pytest.mark.slow
@pytest.mark.parametrize(("left", "use"), [("nothing", "read"), ("nothing", "write"), ("blank", "write")])
def test_a_file_that_is_deleted_or_emptied_under_a_process_is_a_new_one(tmp_path, path, use, left):
    database = Database(path, wait=5.0)
    with database.read() as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    database.path.unlink()
    if left == "blank":
        duckdb.connect(str(tmp_path / "blank.duckdb")).close()
        (tmp_path / "blank.duckdb").rename(database.path)
        with database.read():  # a writer trusts what was read last
            pass
    with getattr(database, use)() as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_a_damaged_database_is_not_called_locked(path):
    data = bytearray(path.read_bytes())
    for start in range(12288, len(data) - 64, 4096):
        data[start : start + 64] = bytes(64)
    path.write_bytes(data)
    database = Database(path, wait=0.1)
    with pytest.raises(StoreError) as caught, database.read() as connection:
        connection.execute("SELECT sum(nll) FROM losses").fetchall()
    assert "in use" not in str(caught.value)


@pytest.mark.slow
def test_a_full_disk_is_named_and_keeps_what_was_there(database):
    """The process may write no file beyond 2 MB, which DuckDB meets as it meets a full disk."""
    code = """
import resource, signal, sys
from focus_runtime.store.database import Database
from focus_runtime.errors import StoreError
database = Database(sys.argv[1])
with database.write() as connection:
    connection.execute("INSERT INTO tokens SELECT 'kept', range, 0, 'x', 0, 1 FROM range(10)")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
try:
    with database.write() as connection:
        connection.execute("INSERT INTO tokens SELECT 'lost', range, 0, md5(range::VARCHAR), 0, 1 FROM range(200000)")
except StoreError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code, str(database.path)], capture_output=True, text=True, timeout=60)
    assert "the disk is full" in run.stdout, run.stderr
    with database.read() as connection:
        assert connection.execute("SELECT run_id, count(*) FROM tokens GROUP BY ALL").fetchall() == [("kept", 10)]


@pytest.mark.slow
def test_lock_holder_is_named_and_waited_for(database):
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); input()"
    command = [sys.executable, "-c", code, str(database.path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline().strip() == "held"
        with pytest.raises(StoreError, match=rf"in use by.*{holder.pid}"), Database(database.path, wait=0.2).write():
            pass
        threading.Timer(0.5, holder.kill).start()
        with Database(database.path, wait=15).write() as connection:
            assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    finally:
        holder.kill()
        holder.wait()


def test_projection_replaces_itself(database):
    meta = {"method": "PCA", "parameters": {}, "seed": 0, "trustworthiness": None, "num_centroids": 2}
    for shift in (0.0, 1.0):
        write_projection(database, "run", 3, np.arange(12.0).reshape(6, 2) + shift, meta)
    with database.read() as connection:
        rows = connection.execute("SELECT position, x FROM projections ORDER BY position").fetchall()
    assert rows == [(-2, 11.0), (-1, 9.0), (0, 1.0), (1, 3.0), (2, 5.0), (3, 7.0)]
