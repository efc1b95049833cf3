"""Watches which files this process opens and changes: hostile input must not lead out of the folders it was given."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from tests.helpers import ROOT

CANARY = "/etc/passwd"  # named by hostile values; nothing here has a reason to read it
CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_seen: list[tuple[str, str]] | None = None


def _hook(event, arguments):
    if _seen is None or not (event == "open" or event in CHANGES):
        return
    path = arguments[0]
    if isinstance(path, int) or path is None:
        return
    path = os.path.abspath(os.fsdecode(path))
    if event == "open":
        mode, flags = arguments[1], arguments[2] or 0
        writes = (isinstance(mode, str) and set(mode) & set("wax+")) or flags & WRITING
        _seen.append(("write" if writes else "read", path))
    else:
        _seen.append(("write", path))


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
    assert outside == []
    assert [path for _, path in seen if path == CANARY or path.endswith(CANARY)] == []
