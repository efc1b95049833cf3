"""The paper's corpora through `datasets`: streamed, a given number of characters of a split, never the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from focus_explorer.errors import InputError

INSTALL = "pip install 'focus-explorer[eval]', which brings datasets, and connect to the hub"


@dataclass(frozen=True, slots=True)
class Corpus:
    """Where a corpus lies on the hub.

    Attributes:
        path, config: of the dataset; config None where it has one alone.
        train, held_out: its splits. OpenWebText has one split alone: its beginning is held out.
        column: of the text.
    """

    path: str
    config: str | None
    train: str
    held_out: str
    column: str = "text"


CORPORA = {
    "PG-19": Corpus("emozilla/pg19", None, "train", "validation"),
    "WikiText-103": Corpus("Salesforce/wikitext", "wikitext-103-raw-v1", "train", "validation"),
    "OpenWebText": Corpus("Skylion007/openwebtext", None, "train", "train"),
}


def hub_texts(name: str, *, train: int, held_out: int) -> tuple[list[str], list[str]]:
    """Training and held-out texts of one corpus, which share no document.

    Args:
        name: a key of `CORPORA`.
        train, held_out: characters of each.

    Raises:
        InputError: `datasets` is missing, the hub cannot be reached, or the corpus has changed its form.
    """
    corpus = CORPORA[name]
    if corpus.train == corpus.held_out:
        texts = _streamed(name, corpus, corpus.train, held_out + train)
        total, count = 0, 0
        while count < len(texts) and total < held_out:
            total, count = total + len(texts[count]), count + 1
        return texts[count:], texts[:count]
    return _streamed(name, corpus, corpus.train, train), _streamed(name, corpus, corpus.held_out, held_out)


def _streamed(name: str, corpus: Corpus, split: str, characters: int) -> list[str]:
    try:
        import datasets
    except ImportError as error:
        raise InputError(f"{name} is read by the package datasets, which is not installed", fix=INSTALL) from error
    texts: list[str] = []
    total = 0
    try:
        rows: Any = datasets.load_dataset(corpus.path, corpus.config, split=split, streaming=True)
        for row in rows:
            text = row[corpus.column]
            if text.strip():
                texts.append(text)
                total += len(text)
            if total >= characters:
                break
    except Exception as error:  # datasets, its file systems and its HTTP client have no common error
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InputError(f"{name} ({corpus.path}, {split}) cannot be had: {reason}", fix=INSTALL) from error
    return texts
