"""A writer's turn at a DuckDB file that several processes read: who waits to write is let in before the next reader.

A writer that finds the file in use holds a lock on a file of that name with `.turn` added, until it is in. Readers that
come later wait for it. The lock ends with its process; a file that was left behind means nothing.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

try:
    import fcntl
except ImportError:  # not on Windows, where readers and writers take their chances
    fcntl = None  # type: ignore[assignment]

PAUSE = 0.02
SUPPORTED = fcntl is not None


class Turn:
    """The wish of one writer to be next.

    Args:
        path: of the DuckDB file.
    """

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
