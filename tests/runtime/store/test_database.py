"""Several processes share one file from its first moment on."""

from __future__ import annotations

import os
import threading
import time

import pytest

from focus_runtime.errors import StoreError
from focus_runtime.store.database import Database


def test_a_file_that_another_process_is_creating_is_waited_for(tmp_path):
    """DuckDB writes the headers a moment after the file is there."""
    path, made = tmp_path / "a.duckdb", tmp_path / "made.duckdb"
    with Database(made).write():
        pass
    content = made.read_bytes()
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
