"""A database is checked, copied while it is in use, put back, and saved as far as it can be read."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from contextlib import suppress

import duckdb
import pytest

from focus_explorer.cli.main import main
from focus_explorer.errors import StoreError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.database_care import backup, check, repair, restore
from focus_explorer.usecases.labels import label_run
from focus_explorer.usecases.runs import list_runs, run_text
from focus_explorer.usecases.service import Service
from tests.explorer.conftest import TEXT
from tests.helpers import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stored(tmp_path_factory, model_folder):
    """(database, ids of its three runs)."""
    service = Service(tmp_path_factory.mktemp("care") / "runs.duckdb")
    request = AnalyzeRequest(model=model_folder, centroids="random", top_k=1, window=8, repeats=1, max_tokens=60)
    return service.database.path, [analyze(service, TEXT + str(i), request) for i in range(3)]


@pytest.fixture
def path(stored, tmp_path):
    return shutil.copy(stored[0], tmp_path / "runs.duckdb")


def ids(path):
    return sorted(row["run_id"] for row in list_runs(Service(path).database))


def test_a_whole_database(path, stored, capsys):
    found = check(path)
    assert found.whole
    assert found.runs == sorted(stored[1])
    assert found.rows["runs"] == 3
    assert main(["db", "check", "--db", str(path)]) == 0
    assert capsys.readouterr().out == "3 runs whole, 0 not\n"


def test_a_run_that_lacks_rows_is_named(path, stored, capsys):
    with duckdb.connect(str(path)) as connection:
        connection.execute("DELETE FROM losses WHERE run_id = ?", [stored[1][1]])
    assert check(path).broken == [stored[1][1]]
    assert main(["db", "check", "--db", str(path)]) == 1
    assert stored[1][1] in capsys.readouterr().err


def test_a_copy_is_put_back_and_what_was_there_is_kept(path, stored, tmp_path):
    assert backup(path, tmp_path / "copy.duckdb") == os.path.getsize(path)
    label_run(Service(path), stored[1][0], name="later")
    kept = restore(path, tmp_path / "copy.duckdb")
    assert ids(path) == sorted(stored[1])
    assert {row["name"] for row in list_runs(Service(path).database)} == {""}
    assert "later" in {row["name"] for row in list_runs(Service(kept).database)}


def test_a_damaged_copy_is_not_put_back(path, tmp_path):
    (tmp_path / "copy.duckdb").write_bytes(path.read_bytes()[:40_000])
    before = path.read_bytes()
    with pytest.raises(StoreError):
        restore(path, tmp_path / "copy.duckdb")
    assert path.read_bytes() == before


def test_whole_runs_are_saved_from_a_damaged_database(path, stored, tmp_path, capsys):
    """One run lost its rows, one table has a block of other bytes."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("DELETE FROM tokens WHERE run_id = ?", [stored[1][2]])
    kept = sorted(stored[1][:2])
    assert main(["db", "repair", "--out", str(tmp_path / "new.duckdb"), "--db", str(path)]) == 1
    assert stored[1][2] in capsys.readouterr().err
    assert ids(tmp_path / "new.duckdb") == kept
    assert check(tmp_path / "new.duckdb").whole
    for run_id in kept:
        assert run_text(Service(tmp_path / "new.duckdb").database, run_id) == run_text(Service(path).database, run_id)
    with pytest.raises(StoreError, match="there is a file"):
        repair(path, tmp_path / "new.duckdb")


@pytest.mark.long
def test_a_truncated_or_overwritten_database_is_one_message(stored, tmp_path, fresh_seed):
    """At every place: it is refused or repaired, and what is repaired is whole."""
    data, rng = stored[0].read_bytes(), random.Random(fresh_seed)
    for number in range(12):
        path = tmp_path / f"{number}.duckdb"
        place = rng.randrange(len(data))
        if number % 2:
            path.write_bytes(data[:place])
        else:
            path.write_bytes(data[:place] + os.urandom(4096) + data[place + 4096 :])
        os.utime(path, (0, 0))  # else it might be one that is being made, which is waited for
        with suppress(StoreError):
            found = repair(path, tmp_path / f"{number}-new.duckdb")
            assert check(tmp_path / f"{number}-new.duckdb").runs == found.runs


@pytest.fixture
def old(tmp_path):
    """A database as version 0.1 left it, with its sha256."""
    content = gzip.decompress((ROOT / "tests" / "fixtures" / "version_0_1" / "runs.duckdb.gz").read_bytes())
    (tmp_path / "old.duckdb").write_bytes(content)
    return tmp_path / "old.duckdb", content


def test_looking_after_an_earlier_versions_database_leaves_it_as_it_is(old, tmp_path):
    path, content = old
    runs = check(path).runs
    assert runs
    assert check(path).whole
    backup(path, tmp_path / "copy.duckdb")
    assert check(tmp_path / "copy.duckdb").runs == runs
    found = repair(path, tmp_path / "saved.duckdb")
    assert found.whole
    assert found.runs == runs
    assert path.read_bytes() == content
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.duckdb", "old.duckdb", "saved.duckdb"]
    assert run_text(Service(tmp_path / "saved.duckdb").database, runs[0]) == run_text(Service(path).database, runs[0])


def test_there_is_nothing_to_look_at(tmp_path, capsys):
    assert main(["db", "check", "--db", str(tmp_path / "none.duckdb")]) == 2
    assert "there is no database" in capsys.readouterr().err
    assert not (tmp_path / "none.duckdb").exists()
