"""Connections to a DuckDB file: who writes in turn, who reads beside, and the copy made before a migration."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any
from weakref import WeakValueDictionary

KEPT_SECONDS = 0.2  # without a read; page and command line read in bursts

_files: WeakValueDictionary[str, OpenFile] = WeakValueDictionary()  # those in use, or with a kept connection
_files_lock = threading.Lock()


def open_file(path: str | os.PathLike[str]) -> OpenFile:
    """What this process has open of a file, one for all who use it."""
    with _files_lock:
        return _files.setdefault(os.path.realpath(path), OpenFile(os.path.realpath(path)))


@dataclass(slots=True)
class Reader:
    """A read-only connection; only a read with the same settings may continue with it."""

    connection: Any
    settings: Hashable
    file: Hashable
    used: float = 0.0  # when it was last given back, in seconds of `time.monotonic`


class OpenFile:
    """Readers, writer and kept connection of one file in this process; safe to use from several threads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._changed = threading.Condition()
        self._readers: Counter[int] = Counter()  # by thread; none waits for itself: DuckDB then says what is wrong
        self.writers = 0  # at work or waiting: readers that come later wait for them
        self._writer: int | None = None  # thread at work
        self._kept: Reader | None = None
        self._sweeping = False

    def begin_read(self, settings: Hashable) -> Reader | None:
        """Wait for writers of this process; the kept connection, where it fits: same settings, same file."""
        with self._changed:
            self._changed.wait_for(lambda: not self.writers or self._writer == get_ident())
            self._readers[get_ident()] += 1
            kept, self._kept = self._kept, None
            if kept is None:
                return None
            if kept.settings == settings and kept.file == self.identity() and not writer_waits(self.path):
                return kept
        kept.connection.close()
        return None

    def end_read(self, reader: Reader | None) -> None:
        """Count a reader out and keep its connection; None where there is nothing to keep."""
        with self._changed:
            self._readers[get_ident()] -= 1
            self._readers += Counter()  # drops zeros
            self._changed.notify_all()
            may_keep = SUPPORTED and self._kept is None and not self.writers
            if reader is not None and may_keep and not writer_waits(self.path):
                reader.used = time.monotonic()
                self._kept, reader = reader, None
                if not self._sweeping:
                    self._sweeping = True
                    threading.Thread(target=self._sweep, daemon=True).start()
        if reader is not None:
            reader.connection.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Wait for readers and writers of this process, and let nobody in while the block runs."""
        with self._changed:
            self.writers += 1
            self._changed.wait_for(lambda: self._writer is None and not set(self._readers) - {get_ident()})
            self._writer = get_ident()
        try:
            self.close_kept()
            yield
        finally:
            with self._changed:
                self._writer = None
                self.writers -= 1
                self._changed.notify_all()

    def identity(self) -> Hashable:
        """Tells a file from one that took its place."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def close_kept(self) -> None:
        """Close the kept connection; returns once it is closed, whoever does so."""
        with self._changed:
            if self._kept is not None:
                self._kept.connection.close()
                self._kept = None

    def _sweep(self) -> None:
        """Close the kept connection once no read has come for it; ends when there is none."""
        left = KEPT_SECONDS
        while left > 0:
            time.sleep(left)
            with self._changed:
                left = 0.0 if self._kept is None else self._kept.used + KEPT_SECONDS - time.monotonic()
                self._sweeping = left > 0
                if not self._sweeping:
                    self.close_kept()


@atexit.register
def _end() -> None:
    """A thread inside DuckDB must not outlive Python."""
    for file in list(_files.values()):
        file.close_kept()


try:
    import fcntl
except ImportError:  # not on Windows, where readers and writers take their chances
    fcntl = None  # type: ignore[assignment]

PAUSE = 0.02
SUPPORTED = fcntl is not None


class Turn:
    """The wish of one writer to be next."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = _turn_file(path)
        self._descriptor: int | None = None

    def claim(self) -> None:
        """Make readers wait from now on, unless another writer does so already or the folder cannot be written."""
        if not SUPPORTED or self._descriptor is not None:
            return
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
            else:
                self._descriptor = descriptor

    def end(self) -> None:
        """Let readers in again."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)  # with it goes the lock
        self._descriptor = None


def writer_waits(path: str | os.PathLike[str]) -> bool:
    """Whether a process waits to write a DuckDB file."""
    if not SUPPORTED:
        return False
    try:
        descriptor = os.open(_turn_file(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # there is no such file: nobody waits
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def let_writers_in(path: str | os.PathLike[str], seconds: float) -> None:
    """Wait until no process waits to write, at most so many seconds."""
    deadline = time.monotonic() + seconds
    while writer_waits(path) and time.monotonic() < deadline:
        time.sleep(PAUSE)


def _turn_file(path: str | os.PathLike[str]) -> str:
    return f"{os.path.realpath(path)}.turn"


def copy_database(connection: Any, part: Path) -> None:
    """Copy all tables of an open database, outside a transaction, into an empty file of `replacing`.

    DuckDB itself copies: a file that this process closes would lose the lock that its connection holds on it.
    """
    name = connection.execute("SELECT current_database()").fetchone()[0].replace('"', '""')
    part.unlink()  # an empty file is no database
    connection.execute(f"ATTACH {sql_string(part)} AS copy_of_database (READ_WRITE)")
    try:
        connection.execute(f'COPY FROM DATABASE "{name}" TO copy_of_database')
        connection.execute("CHECKPOINT copy_of_database")
    finally:
        connection.execute("DETACH copy_of_database")


def sql_string(path: str | os.PathLike[str]) -> str:
    """A path as a string of SQL, for statements that take no parameters."""
    return "'" + os.fspath(path).replace("'", "''") + "'"
