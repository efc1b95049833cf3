"""`--text` and `--val` of a training: plain files and folders, or domains with names and weights."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from focus_explorer.errors import InputError, TextError
from focus_explorer.usecases.training.texts import gather_texts

HELD_OUT = "held-out"  # the one domain of held-out text without names
_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<source>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DomainRequest:
    """One domain as the user gave it.

    Attributes:
        name: "" for texts without names.
        sources: text files and folders.
        weight: above 0.
    """

    name: str
    sources: tuple[str, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class DomainTexts:
    """The texts of one domain and their files."""

    name: str
    texts: list[str]
    files: list[Path]
    weight: float = 1.0


def parse_domains(words: Sequence[str], option: str, *, weighted: bool) -> list[DomainRequest]:
    """What the words after `--text` or `--val` mean. An existing path is a path, whatever its name.

    Args:
        words: paths, or NAME=PATH, with `weighted` also NAME=PATH:WEIGHT.
        option: named in errors.
        weighted: whether domains have weights.

    Returns:
        The domains; one without a name where the words are paths; none without words.

    Raises:
        InputError: a name is given twice or to some texts only, or a weight is no number above 0.
    """
    named = [None if _is_path(word) else _NAMED.fullmatch(word) for word in words]
    if not any(named):
        return [DomainRequest("", tuple(words))] if words else []
    form = f"NAME=PATH{'[:WEIGHT]' if weighted else ''}"
    domains: list[DomainRequest] = []
    for word, match in zip(words, named, strict=True):
        if match is None:
            raise InputError(
                f"{option} {word!r} has no name, but other texts have",
                expected=f"{form} for every {option}, or names for none",
                fix=f"write NAME={word}",
            )
        name, source = match["name"], match["source"]
        if any(name == domain.name for domain in domains):
            raise InputError(
                f"{option} has two domains named {name!r}", expected="every name once", fix="rename one of them"
            )
        source, weight = _weighed(name, source, option) if weighted else (source, 1.0)
        domains.append(DomainRequest(name, (source,), weight))
    return domains


def _is_path(word: str) -> bool:
    return os.path.exists(os.path.expanduser(word))


def _weighed(name: str, source: str, option: str) -> tuple[str, float]:
    """PATH:WEIGHT -> path and weight; 1 without a weight."""
    path, colon, number = source.rpartition(":")
    if not colon or _is_path(source):
        return source, 1.0
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InputError(
            f"{option} gives the domain {name!r} the weight {number!r}",
            expected="a number above 0",
            fix=f"write {name}={path}:2 for twice as many sequences as a domain of weight 1",
        )
    return path, weight


def gather_domains(domains: Sequence[DomainRequest], exclude: Sequence[DomainRequest] = ()) -> list[DomainTexts]:
    """Read the texts of every domain, leaving out every text that is also in a domain of `exclude`.

    Raises:
        TextError: a file is no text, a folder has none, or nothing is left of a domain.
    """
    held_out = [source for domain in exclude for source in domain.sources]
    read = []
    for domain in domains:
        try:
            texts, files = gather_texts(domain.sources, held_out)
        except TextError as error:
            if not domain.name:
                raise
            raise TextError(
                f"the domain {domain.name!r}: {error.problem}",
                expected="text files, or folders with .txt files",
                fix="give it another folder, or leave the domain out",
            ) from error
        read.append(DomainTexts(domain.name, texts, files, domain.weight))
    return read
