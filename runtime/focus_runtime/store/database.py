"""Short-lived connections to one DuckDB file that several processes share.

DuckDB lets one process write at a time. Every use opens, works and closes, a read a moment later (connections.py); a
lock held elsewhere is waited for, and when it stays, the message names the process that holds it.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import duckdb

from focus_runtime.errors import StoreBusyError, StoreError
from focus_runtime.store.connections import OpenFile, Reader, Turn, let_writers_in, open_file
from focus_runtime.store.schema import MIGRATIONS, applied, check_version, foreign_file, is_blank, migrate

WAIT_SECONDS = 20.0
HEADER_BYTES = 3 * 4096  # of a DuckDB file
CREATION_SECONDS = 5.0
DAMAGE_ERRORS = (duckdb.InternalException, duckdb.FatalException, duckdb.SerializationException)
DAMAGE_WORDS = ("checksum", "corrupt", "could not read enough bytes", "failed to deserialize")


class Database:
    """A DuckDB file with the schema of `MIGRATIONS`; `wait` is in seconds, for another process's lock."""

    SETTINGS: ClassVar[str] = ""
    """SQL that a connection begins with."""

    def __init__(self, path: str | Path, *, wait: float = WAIT_SECONDS) -> None:
        self.path = Path(os.path.expanduser(path))
        self.wait = wait
        self._ready = False
        self._thread = threading.local()

    @contextmanager
    def write(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection inside one transaction: committed at the end, rolled back on any error."""
        with open_file(self.path).writing():
            self._ready = self._ready and os.path.exists(self.path)  # one that was deleted is made anew
            connection = self._open(read_only=False)
            try:
                if not self._ready:
                    migrate(connection, str(self.path))
                    self._ready = True
                connection.execute("BEGIN")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    # the failed statement may already have ended the transaction, and its error is the one to report
                    with suppress(duckdb.Error):
                        connection.execute("ROLLBACK")
                    raise
            except (duckdb.Error, OSError) as error:
                if isinstance(error, duckdb.IOException | OSError) or _is_full(str(error)):
                    raise self._explain(error) from error
                raise
            finally:
                connection.close()

    @contextmanager
    def read(self, *, migrates: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-only connection; other readers may work at the same time. A missing file reads as empty.

        A file of an older version is migrated first; where `migrates` is False it must exist and keeps its schema, so
        that what a damaged file holds can still be read. Inside another `read` of the same thread it is that one's
        connection, otherwise it may be one that was read from a moment ago.
        """
        reading = getattr(self._thread, "reading", None)
        if reading is not None:
            yield reading
            return
        if migrates and not os.path.exists(self.path):
            with self.write():
                pass
        shared = open_file(self.path)
        reader, keep = self._begin_read(shared, migrates=migrates), False
        try:
            self._thread.reading = reader.connection
            yield reader.connection
            if (abort := getattr(reader.connection, "abort", None)) is not None:  # since DuckDB 2
                abort()  # what this read leaves unfinished is no matter to the next
            keep = migrates
        except duckdb.Error as error:
            if _is_about_the_file(error):
                raise self._explain(error) from error
            raise
        finally:
            self._thread.reading = None
            if not keep:
                reader.connection.close()
            shared.end_read(reader if keep else None)

    def state(self) -> Hashable:
        """Tells the file's content from every earlier one; None while it is being written or does not exist."""
        shared = open_file(self.path)
        unwritten = not shared.writers and not os.path.exists(f"{self.path}.wal")  # what is there is not in the file
        return shared.identity() if unwritten else None

    def wait_until_unused(self) -> None:
        """Wait until no process has the file open; nothing in it is migrated."""
        with open_file(self.path).writing():
            self._open(read_only=False).close()

    def _begin_read(self, shared: OpenFile, *, migrates: bool) -> Reader:
        """A connection to a file, with today's schema if it migrates, counted among the readers of this process."""
        while True:
            reader = shared.begin_read(self.SETTINGS)
            if reader is not None:
                return reader
            connection = None
            try:
                file = shared.identity()
                connection = self._open(read_only=True)
                if self._is_current(connection, migrates) or not migrates:
                    return Reader(connection, self.SETTINGS, file)
                connection.close()
            except BaseException as error:
                if connection is not None:
                    connection.close()
                shared.end_read(None)
                if isinstance(error, duckdb.Error) and _is_about_the_file(error):
                    raise self._explain(error) from error
                raise
            shared.end_read(None)
            with self.write():  # migrates
                pass

    def _is_current(self, connection: duckdb.DuckDBPyConnection, may_be_blank: bool) -> bool:
        """Whether a database has today's schema; False for an older one or a blank one, an error for any other."""
        done = applied(connection)
        if done and done != list(MIGRATIONS) and not self._ready:
            return False
        self._ready = self._ready or done == list(MIGRATIONS)
        check_version(done, str(self.path))
        if not done:
            if may_be_blank and is_blank(connection):
                self._ready = False
                return False
            raise foreign_file(str(self.path))
        return True

    def _open(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        deadline = time.monotonic() + self.wait
        pause = 0.02
        turn = Turn(self.path)
        try:
            while True:
                if read_only:
                    let_writers_in(self.path, max(0.0, deadline - time.monotonic()))
                before = self._size()
                try:
                    if not read_only:
                        self.path.parent.mkdir(parents=True, exist_ok=True)
                    connection = duckdb.connect(str(self.path), read_only=read_only)
                    if self.SETTINGS:
                        connection.execute(self.SETTINGS)
                    return connection
                except (duckdb.Error, OSError) as error:
                    waits = _is_locked(str(error)) or self._is_being_created(str(error), before)
                    if not waits or time.monotonic() > deadline:
                        raise self._explain(error) from error
                if not read_only:
                    turn.claim()
                time.sleep(pause)
                pause = min(pause * 1.5, 0.1)
        finally:
            turn.end()

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def _is_being_created(self, message: str, size_before: int) -> bool:
        """Another process has made the file a moment ago and not written its headers yet, or did so meanwhile."""
        if not any(words in message.lower() for words in ("not a valid duckdb", "could not read enough bytes")):
            return False
        try:
            status = self.path.stat()
        except OSError:
            return False
        grows = status.st_size < HEADER_BYTES or status.st_size != size_before
        return grows and time.time() - status.st_mtime < CREATION_SECONDS

    def _explain(self, error: Exception) -> StoreError:
        text = str(error)
        if _is_locked(text):
            holder = re.search(r"held in (.+?\(PID \d+\))", text)
            return StoreBusyError(
                f"the database {self.path} is in use by {holder[1] if holder else 'another process'}",
                expected="no other program writing to it",
                fix="wait for it to finish, or choose another file with --db",
            )
        lowered = text.lower()
        if _is_full(text):
            problem, fix = "the disk is full", "free some space; nothing of this run was kept"
        elif "permission" in lowered or "read-only" in lowered or ("cannot open" in lowered and "denied" in lowered):
            problem, fix = "it cannot be written", "choose a writable file with --db"
        elif isinstance(error, DAMAGE_ERRORS) or any(word in lowered for word in DAMAGE_WORDS):
            problem, fix = "the file is damaged", "`focus-explorer db restore` puts a copy back, `db repair` saves runs"
        elif "not a valid duckdb" in lowered or "storage version" in lowered or "serialized" in lowered:
            problem = "it is no DuckDB file, or one from a newer DuckDB"
            fix = "choose another file with --db, or update Focus Explorer"
        else:
            problem, fix = text.strip().splitlines()[0][:200], "choose another file with --db"
        return StoreError(f"the database {self.path} cannot be used: {problem}", fix=fix)


def _is_about_the_file(error: duckdb.Error) -> bool:
    """Whether what went wrong is the file's fault, not a query's."""
    damaged = any(word in str(error).lower() for word in DAMAGE_WORDS)
    return damaged or isinstance(error, (duckdb.IOException, *DAMAGE_ERRORS))


def _is_locked(message: str) -> bool:
    """Another process holds the lock, or another thread of this one has the file open in the other mode."""
    phrases = ("could not set lock", "conflicting lock", "with a different configuration", "already attached")
    return any(words in message.lower() for words in phrases)


def _is_full(message: str) -> bool:
    """DuckDB reports a full disk as several exception types; the words are the same."""
    return any(words in message.lower() for words in ("no space", "disk full", "could not write"))
