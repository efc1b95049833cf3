"""Watches which files this process opens and changes: hostile input must not lead out of the folders it was given."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from tests.helpers import ROOT

CANARY = "/etc/passwd"  # named by hostile values; nothing here has a reason to read it
# What changes files, and where in an event's arguments stand the open folders that its paths are relative to, or -1.
FOLDERS = {
    "os.remove": (1,),
    "os.rmdir": (1,),
    "os.mkdir": (2,),
    "os.chmod": (2,),
    "os.rename": (2, 3),
    "os.link": (2, 3),
    "os.symlink": (2,),
    "os.truncate": (),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_seen: list[tuple[str, str]] | None = None


def _hook(event, arguments):
    if _seen is None or not (event == "open" or event in FOLDERS):
        return
    if event == "open":
        path, mode, flags = arguments
        writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & WRITING
        paths = [path]
    else:
        writes = True
        paths = [each for each in arguments if isinstance(each, str | bytes | os.PathLike)]
        if any(arguments[place] >= 0 for place in FOLDERS.get(event, ()) if place < len(arguments)):
            return  # below a folder that is open, which was looked at then: shutil.rmtree works so
    for path in paths:
        if isinstance(path, str | bytes | os.PathLike):
            _seen.append(("write" if writes else "read", os.path.abspath(os.fsdecode(path))))


sys.addaudithook(_hook)  # for good: such hooks cannot be taken off


@contextmanager
def watched_files():
    """While the block runs nothing is written but temporary files and caches, and no canary is read."""
    global _seen
    _seen = []
    try:
        yield
    finally:
        seen, _seen = _seen, None
    homes = [tempfile.gettempdir(), "/dev", str(ROOT / ".hypothesis"), str(Path.home() / ".cache"), "/proc/self"]
    outside = [
        path
        for what, path in seen
        if what == "write" and "__pycache__" not in path and not any(path.startswith(home) for home in homes)
    ]
    assert not outside, f"written outside: {sorted(set(outside))[:20]}"
    read = sorted({path for _, path in seen if path.endswith(CANARY)})
    assert not read, f"read: {read}"
