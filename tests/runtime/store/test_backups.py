"""A database of an earlier version is copied before its schema is changed."""

from __future__ import annotations

import gzip
import shutil

import duckdb
import pytest

from focus_runtime.errors import InputError
from focus_runtime.store import schema
from focus_runtime.store.database import Database
from tests.helpers import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def database(tmp_path):
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    stored = ROOT / "tests" / "fixtures" / "version_0_1" / "runs.duckdb.gz"
    (folder / "runs.duckdb").write_bytes(gzip.decompress(stored.read_bytes()))
    return Database(folder / "runs.duckdb")


def contents(path):
    """Rows and a hash of every table."""
    with duckdb.connect(str(path), read_only=True) as connection:
        tables = [row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()]
        assert "runs" in tables
        return {
            name: connection.execute(f'SELECT count(*), bit_xor(hash(t)) FROM "{name}" t').fetchone() for name in tables
        }


def copies(database):
    return sorted(path for path in database.path.parent.iterdir() if path.name != database.path.name)


def first_missing(database):
    with duckdb.connect(str(database.path), read_only=True) as connection:
        return next(name for name in schema.MIGRATIONS if name not in schema.applied(connection))


def test_a_copy_holds_what_was_there_and_can_be_migrated_itself(database):
    before, name = contents(database.path), f"{database.path.name}.before-{first_missing(database)}"
    with database.read() as connection:
        assert len(schema.applied(connection)) == len(schema.MIGRATIONS)
    [copy] = copies(database)
    assert copy.name == name
    assert contents(copy) == before
    again = shutil.copyfile(copy, database.path.with_name("again.duckdb"))
    with Database(again).read() as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == before["runs"][:1]


def test_a_migration_that_fails_leaves_the_database_and_its_copy(database, monkeypatch):
    before = contents(database.path)
    monkeypatch.setattr(
        schema, "MIGRATIONS", dict([*schema.MIGRATIONS.items()][:7]) | {"0008_wrong": "SELECT no_such_column FROM runs"}
    )
    for _ in range(2):
        with pytest.raises(duckdb.Error, match="no_such_column"), database.write():
            pass
    assert contents(database.path) == before
    [copy] = copies(database)
    assert contents(copy) == before


def test_without_room_for_the_copy_nothing_is_changed(database, monkeypatch):
    before = contents(database.path)

    def full(*arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("focus_runtime.files.tempfile.mkstemp", full)
    with pytest.raises(InputError, match="No space left"), database.write():
        pass
    assert contents(database.path) == before
    assert not copies(database)
