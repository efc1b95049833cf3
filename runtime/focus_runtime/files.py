"""Files written whole or not at all, and where files outside the package lie.

A file or folder is made under a temporary name in the folder of its target and renamed when it is complete, so that a
reader never sees half of one and an interrupted write leaves the earlier version as it was.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from focus_runtime.errors import InputError

PART = ".part-"  # how temporary names begin
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
STALE_SECONDS = 3600  # without a change, before what a dead process left is removed
RENAMES = 3  # attempts to take an occupied target's place

Explain = Callable[[Path, OSError], Exception]


def default_cache_dir() -> Path:
    """Where converted models are kept between runs."""
    return Path.home() / ".cache" / "focus-explorer"


def cannot_write(
    fix: str = "choose a writable folder with space",
    kind: type[InputError] = InputError,
    *,
    problem: str = "cannot write",
) -> Explain:
    """Make the function that turns an OSError into "PROBLEM TARGET: REASON; FIX"."""
    return lambda target, error: kind(f"{problem} {target}: {error.strerror or error}", fix=fix)


CANNOT_WRITE = cannot_write()


@contextmanager
def replacing(
    target: str | os.PathLike[str], *, explain: Explain | None = CANNOT_WRITE, mode: int = 0o644, sync: bool = False
) -> Iterator[Path]:
    """Replace a file atomically: the block fills a temporary file, which takes the target's place when it ends well.

    Folders above the target are made. The empty temporary file that is yielded has the target's suffix.

    Args:
        explain: target and OSError -> the exception to raise; with None the OSError itself is raised.
        sync: wait until the content is on the disk before renaming, so that a power failure cannot lose both versions.
    """
    target = Path(target)
    with _explained(target, explain):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_parts(target.parent)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f"{PART}{os.getpid()}-", suffix=target.suffix)
        os.close(handle)
        part = Path(name)
        try:
            yield part
            part.chmod(mode)
            if sync:
                with part.open("rb+") as stream:
                    os.fsync(stream.fileno())
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def replacing_folder(
    target: str | os.PathLike[str],
    *,
    explain: Explain | None = CANNOT_WRITE,
    mode: int = 0o755,
    clear: Callable[[], object] | None = None,
) -> Iterator[Path]:
    """Make a folder atomically: the block fills a temporary folder, which is renamed to the target when it ends well.

    Args:
        clear: moves a folder with content out of the way; it is called again when another process was faster. Without
            it such a folder is an error.
    """
    target = Path(target)
    with _explained(target, explain):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_parts(target.parent)
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{PART}{os.getpid()}-"))
        try:
            yield part
            part.chmod(mode)
            _rename_folder(part, target, clear)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def make_private(folder: Path) -> None:
    """Make a folder that its user alone can write, or take that right from others."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not is_own(folder):
        raise OSError(f"{folder} belongs to somebody else")
    mode = stat.S_IMODE(folder.stat().st_mode)
    if os.name == "posix" and mode & OTHERS_WRITE:
        folder.chmod(mode & ~OTHERS_WRITE)


def is_own(path: Path) -> bool:
    """Whether a file or folder itself, not what a link leads to, belongs to this process's user; True on Windows."""
    return os.name != "posix" or path.lstat().st_uid == os.geteuid()


def others_write(path: Path) -> bool:
    """Whether somebody else can write a file, or it is a link; False on Windows."""
    return os.name == "posix" and (path.is_symlink() or bool(path.lstat().st_mode & OTHERS_WRITE))


@contextmanager
def one_process_at_a_time(path: str | os.PathLike[str], waiting: Callable[[], object]) -> Iterator[None]:
    """Let one process after another do a block; where the system or the folder has no locks, all at once.

    Args:
        path: of the lock; one left behind by a killed process means nothing.
        waiting: called every fifth of a second while another process works; what it raises ends the wait.
    """
    descriptor, held = None, False
    with suppress(ImportError, OSError):
        import fcntl

        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while descriptor is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
                break
            except BlockingIOError:
                waiting()
                time.sleep(0.2)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        if descriptor is not None:
            if held:
                with suppress(OSError):
                    os.unlink(path)
            os.close(descriptor)


def check_writable(target: str | os.PathLike[str], *, explain: Explain | None = CANNOT_WRITE) -> None:
    """Find out before any work whether a file could be written; its folder is made."""
    target = Path(target)
    with _explained(target, explain):
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        check_writable_folder(target.parent, explain=None)


def check_writable_folder(folder: str | os.PathLike[str], *, explain: Explain | None = CANNOT_WRITE) -> None:
    """Find out before any work whether files could be written to a folder; it is made."""
    folder = Path(folder)
    with _explained(folder, explain):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


def sweep_parts(folder: Path) -> None:
    """Remove what processes that were killed have left in a folder; looked at once by each process.

    Only what is an hour old and names a process that is no more: another machine may write to the same folder.
    """
    folder = folder.absolute()
    if folder in _swept:
        return
    _swept.add(folder)
    with suppress(OSError):
        for path in folder.glob(f"{PART}*"):
            named = re.match(rf"{re.escape(PART)}(\d+)-", path.name)
            with suppress(OSError):
                if named and path.lstat().st_mtime < time.time() - STALE_SECONDS and not process_runs(int(named[1])):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


_swept: set[Path] = set()


def process_runs(pid: int) -> bool:
    """Whether this machine has a process of a number, also another user's."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def remove_parts(folder: Path) -> None:
    """Remove the temporary files and folders that killed processes left in a folder."""
    for path in folder.glob(f"{PART}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _explained(target: Path, explain: Explain | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if explain is None:
            raise
        raise explain(target, error) from error


def _rename_folder(part: Path, target: Path, clear: Callable[[], object] | None) -> None:
    if clear is None:
        if target.is_dir() and not any(target.iterdir()):
            target.rmdir()  # only POSIX renames onto an empty folder
        os.rename(part, target)
        return
    for _ in range(RENAMES):
        try:
            os.rename(part, target)
            return
        except OSError:
            if not target.is_dir():
                raise
        clear()
    raise OSError(errno.EEXIST, f"{target} is written to by somebody else")
