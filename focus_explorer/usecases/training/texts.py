"""The texts of a training, read from files and folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from focus_explorer.errors import TextError
from focus_explorer.usecases.texts import read_text_file


def gather_texts(sources: Sequence[str], exclude: Sequence[str] = ()) -> tuple[list[str], list[Path]]:
    """Read text files and folders of .txt files, leaving out every text that is also in `exclude`, wherever it lies.

    Returns:
        The texts and their files, in sorted order within each folder.

    Raises:
        TextError: a file is no text, a folder has none, or nothing is left.
    """
    held_out = {read_text_file(path) for path in _text_files(exclude)}
    texts = [(read_text_file(path), path) for path in _text_files(sources)]
    kept = [(text, path) for text, path in texts if text not in held_out]
    if not kept:
        raise TextError(
            "there is no text to train on" + (" besides the held-out one" if texts else ""),
            expected="text files, or folders with .txt files",
        )
    return [text for text, _ in kept], [path for _, path in kept]


def _text_files(sources: Sequence[str]) -> list[Path]:
    files: list[Path] = []
    for source in sources:
        path = Path(os.path.expanduser(source))
        matches = sorted(path.glob("*.txt")) if path.is_dir() else [path]
        if not matches:
            raise TextError(f"the folder {path} has no .txt files", expected="text files, or folders with .txt files")
        files += matches
    return files
