"""Plain text: clean characters, and paragraphs by which texts are compared and cut.

A paragraph is what stands between blank lines. Short ones (headings, commands) are the same in many texts and are not
compared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Set

LONG = 60  # characters beyond which paragraphs are compared
_BLANK_LINES = re.compile(r"(\n(?:[ \t]*\n)+)")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\u00ad\u200b\u200c\u2060\ufeff]")


def clean(text: str) -> str:
    """The text with Unix line ends, without control characters, trailing spaces and more than two blank lines."""
    text = re.sub(r"\r\n?|[\v\f\x85\u2028\u2029]", "\n", text)
    text = _CONTROL.sub("", text.replace("\u00a0", " "))
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{4,}", "\n\n\n", text).strip("\n")


def key(paragraph: str) -> bytes | None:
    """What equal paragraphs have in common, or None for a short one; white space does not count."""
    words = " ".join(paragraph.split())
    return hashlib.sha256(words.encode()).digest() if len(words) > LONG else None


def keys(text: str) -> set[bytes]:
    """Keys of the long paragraphs of a text."""
    return {k for part in _BLANK_LINES.split(text)[::2] if (k := key(part)) is not None}


def without_known(text: str, known: Set[bytes]) -> tuple[str, int]:
    """The text without the long paragraphs whose keys are known, and how many were dropped."""
    parts = [*_BLANK_LINES.split(text), ""]  # paragraph, blank lines, paragraph, ..., ""
    kept, dropped = [], 0
    for paragraph, blank in zip(parts[::2], parts[1::2], strict=True):
        if key(paragraph) in known:
            dropped += 1
        else:
            kept += [paragraph, blank]
    return "".join(kept).strip("\n"), dropped


def first_bytes(text: str, most: int) -> str:
    """The first whole paragraphs that are at most `most` bytes of UTF-8 together; at least one."""
    if len(text.encode()) <= most:
        return text
    parts, size, end = _BLANK_LINES.split(text), 0, 0
    for i in range(0, len(parts), 2):
        size += len("".join(parts[max(0, i - 1) : i + 1]).encode())
        if size > most and i:
            break
        end = i + 1
    return "".join(parts[:end])
