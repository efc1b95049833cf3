"""Queries made to take memory, time or the file (audit finding H4)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from focus_explorer.errors import InputError
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.sql import Limits, run_sql

pytestmark = pytest.mark.slow

MANY = ", ".join(f"range({4_000_000 + i})" for i in range(29))


@pytest.fixture(scope="module")
def database(stored):
    return Service(stored[0]).database


def largest_worker(work):
    """Peak memory of the process that answers a query during a call, in megabytes; every 10 ms."""
    peak, ended = [0], threading.Event()

    def watch():
        while not ended.wait(0.01):
            for pid in os.listdir("/proc"):
                try:
                    with open(f"/proc/{pid}/cmdline") as file:
                        if "sql_worker" not in file.read():  # a child has its parent's memory until it starts
                            continue
                    with open(f"/proc/{pid}/status") as file:
                        status = dict(line.split(":", 1) for line in file if ":" in line)
                    if int(status["PPid"]) == os.getpid():
                        peak[0] = max(peak[0], int(status["VmHWM"].split()[0]) // 1024)
                except (OSError, KeyError, ValueError):
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        ended.set()
        watcher.join()
    return peak[0]


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="reads /proc")
@pytest.mark.parametrize(
    "sql",
    [
        "select repeat('x', 2000000000)",
        pytest.param(f"select {MANY}", marks=pytest.mark.long),
        "select [repeat('x', 4000000) for i in range(1000)]",
        pytest.param("select repeat('x', 4000000) || i from range(1000) t(i)", marks=pytest.mark.long),
        "select list(i) from range(40000000) t(i)",
    ],
    ids=["a long text", "long lists", "a list of texts", "rows of texts", "one list"],
)
def test_h4_values_that_become_objects(database, sql):
    def ask():
        with pytest.raises(InputError, match=r"memory|without an answer|seconds"):
            run_sql(database, sql, Limits(seconds=3.0))

    peak = largest_worker(ask)
    assert 0 < peak < 1300


@pytest.mark.long
def test_h4_queries_in_a_row_do_not_keep_a_writer_out(database):
    """Two at a time, each as long as it may be, and one that waits to write."""
    slow = "select count(*) from range(100000000) a, range(100000) b"
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            with pytest.raises(InputError):
                run_sql(database, slow, Limits(seconds=1.0))

    askers = [threading.Thread(target=ask) for _ in range(2)]
    askers[0].start()
    time.sleep(0.5)
    askers[1].start()
    time.sleep(0.3)
    code = "import sys\nfrom focus_runtime.store.database import Database\nwith Database(sys.argv[1]).write(): pass\n"
    try:
        done = subprocess.run([sys.executable, "-c", code, str(database.path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    finally:
        ended.set()
        for asker in askers:
            asker.join()


def test_h4_many_at_once_are_turned_away_at_once(database):
    slow = "select count(*) from range(100000000) a, range(100000) b"
    said, times = [], []

    def ask():
        start = time.monotonic()
        with pytest.raises(InputError) as raised:
            run_sql(database, slow, Limits(seconds=1.0))
        said.append(str(raised.value))
        times.append(time.monotonic() - start)

    askers = [threading.Thread(target=ask) for _ in range(40)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert sum("six other queries" in one for one in said) == 34
    assert sorted(times)[33] < 1
