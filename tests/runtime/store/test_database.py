"""Several processes share one file from its first moment on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

import duckdb
import pytest

from focus_runtime.errors import StoreError
from focus_runtime.store import connections
from focus_runtime.store.connections import open_file
from focus_runtime.store.database import Database
from focus_runtime.store.schema import MIGRATIONS


def test_a_file_that_another_process_is_creating_is_waited_for(tmp_path, migrated):
    """DuckDB writes the headers a moment after the file is there."""
    path, content = tmp_path / "b.duckdb", migrated.read_bytes()
    path.write_bytes(content[:100])

    def finish():
        time.sleep(0.3)
        path.write_bytes(content)

    writer = threading.Thread(target=finish)
    writer.start()
    with Database(path).write() as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    writer.join()


def test_a_small_file_of_another_kind_is_refused_at_once(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("no database\n" * 20)
    old = time.time() - 60
    os.utime(path, (old, old))
    start = time.monotonic()
    with pytest.raises(StoreError, match="it is no DuckDB file"), Database(path).write():
        pass
    assert time.monotonic() - start < 2
    path.write_text("no database\n" * 20)  # a moment ago: it might be one that is being created
    with pytest.raises(StoreError, match="it is no DuckDB file"), Database(path, wait=0.2).write():
        pass
    assert path.read_text().startswith("no database")


def count(database, table="group_names"):
    with database.read() as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def name_a_group(database):
    with database.write() as connection:
        connection.execute("INSERT INTO group_names VALUES ('f', 0, 0, 'verbs', now())")


def opened(monkeypatch):
    """What is opened from now on: True for each time it is for reading alone."""
    modes, real = [], connections_open

    def recorded(self, *, read_only):
        modes.append(read_only)
        return real(self, read_only=read_only)

    monkeypatch.setattr(Database, "_open", recorded)
    return modes


connections_open = Database._open


def test_reads_in_a_row_open_the_file_once_and_see_every_write(database, monkeypatch):
    monkeypatch.setattr(connections, "KEPT_SECONDS", 30.0)
    modes = opened(monkeypatch)
    assert [count(database), count(Database(database.path)), count(database)] == [0, 0, 0]
    assert modes == [True]
    name_a_group(Database(database.path))  # of another part of the program
    assert [count(database), count(database)] == [1, 1]
    assert modes == [True, False, True]


def test_a_file_that_took_the_place_of_another_is_opened_anew(database, migrated, tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "KEPT_SECONDS", 30.0)
    other = Database(shutil.copy(migrated, tmp_path / "other.duckdb"))
    name_a_group(other)
    assert count(database) == 0
    shutil.copy(other.path, tmp_path / "copy")
    os.replace(tmp_path / "copy", database.path)
    assert count(database) == 1


OLD_CELL = """
INSERT INTO comparisons VALUES ('run', 'focus', 1, 8, 0, 'causal', now(), ?, 9, 9, 0.5, 0.5, 0.5, 1, 1, [1], [1], [1],
    [1], '', '', '', 1)
"""


def test_an_interval_of_one_token_that_an_earlier_version_kept_is_none(tmp_path):
    path, names = tmp_path / "old.duckdb", list(MIGRATIONS)
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE schema_migrations (name VARCHAR PRIMARY KEY, applied_at TIMESTAMPTZ)")
        for name in names[: names.index("0022_window_growth") + 1]:
            connection.execute(MIGRATIONS[name])
            connection.execute("INSERT INTO schema_migrations VALUES (?, now())", [name])
        for scored in (1, 2):
            connection.execute(OLD_CELL, [scored])
    with Database(path).write() as connection:
        rows = connection.execute("SELECT scored, delta_low, delta_high FROM comparisons ORDER BY scored").fetchall()
    assert rows == [(1, None, None), (2, 0.5, 0.5)]


def test_a_failed_read_is_not_continued(database, monkeypatch):
    modes = opened(monkeypatch)
    with pytest.raises(ValueError, match="of the caller"), database.read():
        raise ValueError("of the caller")
    assert count(database) == 0
    assert modes == [True, True]


WRITER = """
import sys
from focus_runtime.store.database import Database
from focus_runtime.store.schema import MIGRATIONS
with Database(sys.argv[1], wait=10).write() as connection:
    connection.execute("INSERT INTO group_names VALUES ('f', 0, 0, 'verbs', now())")
"""


@pytest.mark.slow
def test_another_process_writes_while_this_one_reads_without_end(database):
    """Every read continues the connection of the one before; it is closed in time all the same."""
    ended = threading.Event()

    def read():
        while not ended.is_set():
            count(database)
            time.sleep(0.02)  # shorter than a connection is kept

    reader = threading.Thread(target=read)
    reader.start()
    try:
        done = subprocess.run([sys.executable, "-c", WRITER, str(database.path)], capture_output=True, text=True)
    finally:
        ended.set()
        reader.join()
    assert done.returncode == 0, done.stderr
    assert count(database) == 1


@pytest.mark.slow
def test_who_waits_to_write_is_let_in_before_the_next_reader(database):
    """Long reads that overlap leave no moment in which nobody reads."""
    readers = []
    code = (
        "import sys, time\nfrom focus_runtime.store.database import Database\ndatabase = Database(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "while True:\n    with database.read():\n        time.sleep(0.5)\n"
    )
    try:
        for _ in range(2):
            readers.append(
                subprocess.Popen([sys.executable, "-c", code, str(database.path)], stdout=subprocess.PIPE, text=True)
            )
        for reader in readers:
            assert reader.stdout.readline() == "ready\n"
            time.sleep(0.25)
        for _ in range(3):
            start = time.monotonic()
            with Database(database.path, wait=10.0).write():
                pass
            assert time.monotonic() - start < 3
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
    assert not list(database.path.parent.glob("*.turn"))


def test_threads_read_side_by_side_and_writers_get_their_turn(database):
    """Two reads overlap; a writer waits for both, and is not overtaken by readers that come after it."""
    together, writer_waits, order = threading.Barrier(3, timeout=10), threading.Event(), []

    def read(name):
        with database.read():
            together.wait()
            assert writer_waits.wait(10)
            order.append(name)

    def write():
        together.wait()
        name_a_group(database)
        order.append("write")

    threads = [threading.Thread(target=read, args=(name,)) for name in ("one", "two")]
    threads.append(threading.Thread(target=write))
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 10
    while not open_file(database.path).writers and time.monotonic() < deadline:
        time.sleep(0.005)
    threading.Timer(0.1, writer_waits.set).start()
    late = count(database)  # asked while both read and the writer waits
    for thread in threads:
        thread.join(10)
    assert sorted(order[:2]) == ["one", "two"]
    assert (order[2], late) == ("write", 1)


def test_files_that_nobody_uses_any_more_are_forgotten(tmp_path, migrated):
    """A public page opens a file for each of its visitors."""
    for number in range(3):
        database = Database(shutil.copy(migrated, tmp_path / f"{number}.duckdb"))
        name_a_group(database)
        assert count(database) == 1
    deadline = time.monotonic() + 10  # a connection is kept for a moment
    while any(str(tmp_path) in path for path in list(connections._files)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [path for path in connections._files if str(tmp_path) in path]
