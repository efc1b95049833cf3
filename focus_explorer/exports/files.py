"""Files written whole or not at all; all exports go through here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from focus_explorer.errors import InputError


@contextmanager
def replacing(out: str | Path) -> Iterator[Path]:
    """A temporary file beside `out` that takes its place when the block ends well, and is gone when it does not.

    Folders above `out` are made. The temporary file has the same suffix.

    Raises:
        InputError: it cannot be written; nothing half-written stays.
    """
    target = Path(os.path.expanduser(out))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".export-", suffix=target.suffix)
        os.close(handle)
        part = Path(name)
        try:
            yield part
            part.chmod(0o644)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write {target}: {error.strerror or error}", fix="choose a writable folder with space"
        ) from error


def write_text(out: str | Path, text: str) -> Path:
    """Write UTF-8 text atomically.

    Raises:
        InputError: it cannot be written.
    """
    with replacing(out) as part:
        part.write_text(text, encoding="utf-8", newline="\n")
    return Path(os.path.expanduser(out))
