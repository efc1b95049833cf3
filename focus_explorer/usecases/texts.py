"""Texts to explore: the samples that ship with the project, and a user's files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from focus_explorer import settings
from focus_explorer.errors import TextError
from focus_explorer.settings import asset_path
from focus_explorer.usecases.service import Service
from focus_runtime.models.embedded import EMBEDDED
from focus_runtime.text.special import DEFAULT, added_tokens, text_ids, training_note
from focus_runtime.text.tokens import decode_text

if TYPE_CHECKING:
    from focus_runtime.routing.centroids import Centroids

SAMPLES = {
    "Novel": "novel.txt",
    "Manual": "manual.txt",
    "Source code": "code.txt",
    "SQL": "sql.txt",
    "Dialogue": "dialogue.txt",
    "French": "french.txt",
    "German": "german.txt",
}


def sample_text(name: str) -> str:
    return asset_path("samples", SAMPLES[name]).read_text(encoding="utf-8").strip()


def sample_of(text: str) -> str | None:
    """The name of the sample that a text is, or is the beginning of; None for any other text."""
    return next((name for name in SAMPLES if sample_text(name).startswith(text)), None)


def count_tokens(service: Service, model: str, text: str, special_tokens: str = DEFAULT) -> int | None:
    """Tokens of a text with the special ones, "auto" or "none"; None where the model is busy or not on this machine."""
    tokenizer = service.models.tokenizer(model)
    return None if tokenizer is None else len(text_ids(tokenizer, text, special_tokens))


def old_text_note(service: Service, model: str, special_tokens: str | None) -> str | None:
    """What to say of a run or corpus of a version before 0.3, which read texts without special tokens."""
    if special_tokens is not None or model == EMBEDDED:
        return None
    tokenizer = service.models.tokenizer(model)
    added = () if tokenizer is None else added_tokens(tokenizer).pieces
    if not added:
        return None
    return (
        f"An older version read this text without {' '.join(added)}, which the model's tokenizer puts before every "
        "text. Explore the text again for the figures of the model as it is meant to be used."
    )


def special_token_notes(tokenizer: Any, special_tokens: str, centroids: Sequence[Centroids]) -> list[str]:
    """What to say where texts, or those that centroids were trained on, lack what the tokenizer puts before a text."""
    left_out = added_tokens(tokenizer, special_tokens).left_out
    notes = [f"the texts were read without {' '.join(left_out)} (--special-tokens none)"] if left_out else []
    for one in centroids:
        note = training_note(tokenizer, one.training)
        if note is not None:
            notes.append(f"{one.name}: {note}")
    return notes


def all_samples() -> str:
    """The sample texts in order, with blank lines between."""
    return "\n\n".join(sample_text(name) for name in SAMPLES)


def check_size(size: int, name: str) -> None:
    """Refuse more bytes of text than can be handled: `settings.MAX_TEXT_BYTES`."""
    if size > settings.MAX_TEXT_BYTES:
        raise TextError(
            f"{name} has {size / 2**20:.0f} MB{' or more' if size == settings.MAX_TEXT_BYTES + 1 else ''}",
            expected=f"at most {settings.MAX_TEXT_BYTES / 2**20:.0f} MB of text",
            fix="cut it, for example with `head -c 1000000`",
        )


def read_text_stream(stream: BinaryIO, name: str) -> str:
    """The text of a stream such as standard input, of which no more is read than a text may have."""
    data = stream.read(settings.MAX_TEXT_BYTES + 1)
    check_size(len(data), name)
    return decode_text(data, name)


def read_text_file(path: Path) -> str:
    """A text file's content; a TextError where it is missing, unreadable, too large, or not text."""
    try:
        check_size(path.stat().st_size, path.name)
        return decode_text(path.read_bytes(), path.name)
    except OSError as error:
        raise TextError(
            f"cannot read {path}: {error.strerror}", expected="a text file, or - for standard input"
        ) from error


def text_files(sources: Sequence[str]) -> list[Path]:
    """Text files, and the .txt files in folders, sorted within each folder."""
    files: list[Path] = []
    for source in sources:
        path = Path(os.path.expanduser(source))
        matches = sorted(path.glob("*.txt")) if path.is_dir() else [path]
        if not matches:
            raise TextError(f"the folder {path} has no .txt files", expected="text files, or folders with .txt files")
        files += matches
    return files
