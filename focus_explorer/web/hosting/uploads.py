"""Where uploads lie until they are checked: a folder that this user alone can read, gone with the server."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from pathlib import Path

from focus_explorer.settings import process_runs, set_upload_folder

_NAME = re.compile(r"focus-explorer-uploads-(\d+)-\w+")


def private_uploads(parent: str | Path | None = None) -> Path:
    """Make the folder, before Gradio is imported; what servers that were killed left behind is removed.

    Args:
        parent: where it is made; the system's folder for temporary files when None.
    """
    parent = Path(parent or tempfile.gettempdir())
    sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"focus-explorer-uploads-{os.getpid()}-", dir=parent))  # mode 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    set_upload_folder(folder)
    return folder


def sweep(parent: Path) -> None:
    """Remove this user's folders of servers that no longer run."""
    for folder in parent.glob("focus-explorer-uploads-*"):
        named = _NAME.fullmatch(folder.name)
        if named and not folder.is_symlink() and _is_ours(folder) and not process_runs(int(named[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.getuid()
    except (OSError, AttributeError):  # gone meanwhile, or a system without users
        return False
