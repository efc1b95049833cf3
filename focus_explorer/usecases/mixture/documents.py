"""From the files of a package to one text: a reader for each kind of file."""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from focus_explorer.usecases.mixture import man, markup

Files = dict[PurePosixPath, bytes]  # path in the package -> content, in the order of reading
BETWEEN = "\n\n\n"  # documents
LONGEST_LINE, LONGEST_MEAN = 2_000, 200  # characters; more has been made by a program


def _decoded(content: bytes) -> str | None:
    """The content as UTF-8, unpacked where it is a gzip file, or None where it is no text."""
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        return content.decode("utf-8")
    except (UnicodeDecodeError, OSError, EOFError, zlib.error):
        return None


def _plain(files: Files) -> Iterator[str]:
    yield from (text for content in files.values() if (text := _decoded(content)) is not None)


def _html(files: Files) -> Iterator[str]:
    yield from ("\n\n".join(markup.paragraphs_of(page)) for page in _plain(files))


def _code(files: Files) -> Iterator[str]:
    for text in _plain(files):
        lines = text.splitlines()
        if lines and max(map(len, lines)) <= LONGEST_LINE and len(text) / len(lines) <= LONGEST_MEAN:
            yield text


def _man(files: Files) -> Iterator[str]:
    yield from (text for page in _plain(files) if (text := man.text_of(page)))


def _sword(files: Files) -> Iterator[str]:
    """Bibles of the SWORD project (zText): an index, and one compressed block of OSIS markup for each book."""
    by_name = {path.suffix: content for path, content in files.items()}
    index, blocks = by_name.get(".bzs", b""), by_name.get(".bzz", b"")
    for start, size, _ in struct.iter_unpack("<III", index):
        book = zlib.decompress(blocks[start : start + size]).decode("utf-8") if size else ""
        text = "\n\n".join(markup.paragraphs_of(book.replace("</note>", "</note> ")))
        yield re.sub(r" +([,.;:?!])", r"\1", text)


READERS: dict[str, Callable[[Files], Iterator[str]]] = {
    "plain": _plain,
    "html": _html,
    "code": _code,
    "man": _man,
    "sword": _sword,
}


def document_text(kind: str, files: Files) -> str:
    """The text of files of one kind, a name of `READERS`, in order; a file that is no text is left out."""
    return BETWEEN.join(text.strip("\n") for text in READERS[kind](files) if text.strip())
