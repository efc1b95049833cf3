"""What a group's tokens have in common: traits of tokens, and how well each trait tells a group from the rest.

The association of a group and a trait is the phi coefficient of their 2 x 2 table (Pearson's correlation of two
yes-or-no values): 1 when they are the same tokens, 0 when knowing one says nothing of the other. Chance is Fisher's
exact test, one-sided: how probable it is that a group of as many tokens, drawn at random, has so many with the trait.
(The normal approximation of phi is not used: for traits of few tokens it calls chance what is not.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from focus_runtime.text.tagging import CLASSES, class_numbers, sentences

FEWEST = 5  # tokens that a trait, and a group that is named, must have
PIECES = 40  # pieces that are traits of their own, the most frequent ones
NO_WORD = ("punctuation", "whitespace", "continuation", "other")

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Traits:
    """Traits of T tokens.

    Attributes:
        names: A names: a word class of `CLASSES`, "word_start", "sentence_start", "line_start", "after_punctuation",
            "capital", "new", "repeated", "copied", "early", "late", or "piece:" and a piece.
        flags: (T, A) whether a token has a trait.
    """

    names: tuple[str, ...]
    flags: Flags


@dataclass(frozen=True, slots=True)
class Association:
    """A group and a trait.

    Attributes:
        trait: name of the trait.
        phi: correlation, -1 to 1.
        share: of the group's tokens that have the trait.
        base: of all tokens.
        covered: of the tokens with the trait that are in the group.
        p_value: probability that the best of all traits tried does as well in a group drawn at random, at most 1: the
            trait's own, times the number of traits (Bonferroni); tokens count as independent.
    """

    trait: str
    phi: float
    share: float
    base: float
    covered: float
    p_value: float


def token_traits(pieces: Sequence[str]) -> Traits:
    """Traits of a text's tokens that at least `FEWEST` of them have, and not all.

    Args:
        pieces: in order, adding up to the text.
    """
    kinds = np.array(CLASSES)[class_numbers(pieces)]
    columns: dict[str, Flags] = {name: kinds == name for name in CLASSES}
    columns["word_start"] = ~np.isin(kinds, NO_WORD)
    starts = np.diff(sentences(pieces), prepend=-1) > 0
    columns["sentence_start"] = starts
    columns["line_start"] = np.array([True, *("\n" in piece for piece in pieces[:-1])])
    columns["after_punctuation"] = np.concatenate([[False], columns["punctuation"][:-1]])
    columns["capital"] = np.array([piece.strip()[:1].isupper() for piece in pieces])
    repeated = _seen_before(pieces)
    columns["repeated"], columns["new"] = repeated, ~repeated
    columns["copied"] = np.concatenate([[False], _seen_before(list(pairwise(pieces)))])
    place = np.arange(len(pieces)) / len(pieces)
    columns["early"], columns["late"] = place < 0.25, place >= 0.75
    texts = np.array(pieces, dtype=object)
    for piece, _ in Counter(pieces).most_common(PIECES):
        columns[f"piece:{piece}"] = texts == piece
    kept = {name: flags for name, flags in columns.items() if FEWEST <= flags.sum() < len(pieces)}
    return Traits(tuple(kept), np.stack(list(kept.values()), axis=1) if kept else np.zeros((len(pieces), 0), bool))


def associations(top: NDArray[np.integer], num_groups: int, traits: Traits) -> list[list[Association]]:
    """Traits of every group, the strongest first; none for a group of fewer than `FEWEST` tokens, or of all.

    Args:
        top: (T,) the tokens' groups.
        num_groups: K.
        traits: of the same tokens.
    """
    from scipy.stats import hypergeom  # the page answers half a second earlier without

    total, names = len(top), traits.names
    flags = traits.flags.astype(np.float32)
    counts = np.stack([flags[top == group].sum(axis=0, dtype=np.float64) for group in range(num_groups)])
    sizes, having = np.bincount(top, minlength=num_groups).astype(float), flags.sum(axis=0, dtype=np.float64)
    spread = np.sqrt(np.outer(sizes * (total - sizes), having * (total - having)))
    phi = np.divide(total * counts - np.outer(sizes, having), spread, out=np.zeros_like(counts), where=spread > 0)
    by_chance = hypergeom.sf(counts - 1, total, having[None, :], sizes[:, None])
    found = []
    for group in range(num_groups):
        named = FEWEST <= sizes[group] < total
        order: list[int] = np.argsort(-phi[group], kind="stable").tolist() if named else []
        found.append(
            [
                Association(
                    names[trait],
                    float(phi[group, trait]),
                    float(counts[group, trait] / sizes[group]),
                    float(having[trait] / total),
                    float(counts[group, trait] / having[trait]),
                    min(1.0, float(by_chance[group, trait]) * len(names)),
                )
                for trait in order
            ]
        )
    return found


def _seen_before(values: Sequence[object]) -> Flags:
    """Whether each value occurs earlier in the sequence."""
    known: set[object] = set()
    seen = np.zeros(len(values), dtype=bool)
    for place, value in enumerate(values):
        seen[place] = value in known
        known.add(value)
    return seen
