"""A name for every group of every layer of a run, from what its tokens have in common, or that nothing is clear.

The association of a group and a trait is the phi coefficient of their 2 x 2 table (Pearson's correlation of two
yes-or-no values). Chance is Fisher's exact test, one-sided: the normal approximation calls chance what is not, for
traits of few tokens. A group is named after the trait with the highest phi of those that at least `LEAST_SHARE` of its
tokens have, if that phi is at least `LEAST_PHI` and above what any group of random centroids reaches in the same layer,
where these were measured, and if chance explains it in less than one of `1 / MOST_P_VALUE` groups.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pyarrow import Table

from focus_explorer.data.parts import placed
from focus_explorer.data.queries import fetch, fetch_run
from focus_runtime.store.database import Database
from focus_runtime.text.tagging import CLASSES, class_numbers, sentences

FEWEST = 5  # tokens that a trait, and a group that is named, must have
PIECES = 40  # pieces that are traits of their own, the most frequent ones
NO_WORD = ("punctuation", "whitespace", "continuation", "other")

Flags = NDArray[np.bool_]

LEAST_PHI = 0.25
LEAST_SHARE = 0.25
MOST_P_VALUE = 0.025
MOST = 0.5  # share from which a name says "mostly"
EVIDENCE = 3
KEPT_RUNS = 4
WORDS = {
    "punctuation": "punctuation",
    "whitespace": "spaces and line ends",
    "determiner": "determiners",
    "preposition": "prepositions",
    "conjunction": "conjunctions",
    "pronoun": "pronouns",
    "auxiliary": "auxiliary verbs",
    "function": "function words",
    "number": "numbers",
    "name": "names",
    "content": "content words",
    "continuation": "later parts of words",
    "other": "other marks",
    "word_start": "first parts of words",
    "sentence_start": "starts of sentences",
    "line_start": "starts of lines",
    "after_punctuation": "after punctuation",
    "capital": "capitalised",
    "new": "first occurrences",
    "repeated": "repeated tokens",
    "copied": "repeated pairs of tokens",
    "early": "from the first quarter of the text",
    "late": "from the last quarter of the text",
}


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
    """A group and a trait."""

    trait: str
    phi: float  # correlation, -1 to 1
    share: float  # of the group's tokens that have the trait
    base: float  # of all tokens
    covered: float  # of the tokens with the trait that are in the group
    p_value: float  # of the best of all traits in a group drawn at random: times their number (Bonferroni)


def token_traits(pieces: Sequence[str]) -> Traits:
    """Traits of a text's tokens that at least `FEWEST` of them have, and not all."""
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
    """Traits of every group, the strongest first; none for a group of fewer than `FEWEST` tokens, or of all."""
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
    first: dict[object, int] = {}
    return np.array([first.setdefault(value, place) != place for place, value in enumerate(values)], dtype=bool)


@dataclass(frozen=True, slots=True)
class GroupName:
    """What a group holds."""

    name: str  # such as "mostly pronouns"; empty where nothing is clear
    evidence: tuple[Association, ...]  # of highest phi, at most `EVIDENCE`; none where tokens are too few


@dataclass(frozen=True, slots=True)
class RunNames:
    """The names of a run's groups."""

    layers: tuple[int, ...]
    names: tuple[tuple[GroupName, ...], ...]
    traits: int
    random: tuple[float | None, ...]  # by layer, the highest phi of random centroids' groups, if measured


def trait_words(trait: str) -> str:
    """A trait in words; a piece between quotation marks, its spaces and line ends visible."""
    if not trait.startswith("piece:"):
        return WORDS[trait]
    piece = json.dumps(trait.removeprefix("piece:"), ensure_ascii=False)[1:-1]
    return f"“{piece.replace(chr(92) + chr(34), chr(34)).replace(' ', '␣')}”"


def run_names(database: Database, run_id: str) -> RunNames:
    """Names of the groups of a stored run."""
    fetch_run(database, run_id)
    measured = fetch(database, "measured", run_id=run_id)["random_seed"][0].as_py()
    return _run_names(database, run_id, measured)


@lru_cache(maxsize=KEPT_RUNS)  # a stored run never changes but for its baseline, whose seed tells whether there is one
def _run_names(database: Database, run_id: str, random_seed: int | None) -> RunNames:
    groups = json.loads(fetch_run(database, run_id)["config"])["num_groups"]
    traits = token_traits(fetch(database, "tokens", run_id=run_id)["piece"].to_pylist())
    own = _tops(fetch(database, "tops", run_id=run_id), len(traits.flags))
    random: dict[int, float] = {}
    if random_seed is not None:
        for layer, top in _tops(fetch(database, "baseline_assignments", run_id=run_id), len(traits.flags)).items():
            best = [found[0].phi for found in associations(top, int(top.max()) + 1, traits) if found]
            random[layer] = max(best, default=0.0)
    names = tuple(
        tuple(
            GroupName(_name(found, random.get(layer, 0.0)), tuple(found[:EVIDENCE]))
            for found in associations(top, groups, traits)
        )
        for layer, top in own.items()
    )
    return RunNames(tuple(own), names, len(traits.names), tuple(random.get(layer) for layer in own))


def _name(found: list[Association], random: float) -> str:
    for one in found:
        if one.phi <= random or one.phi < LEAST_PHI:
            break
        if one.share >= LEAST_SHARE and one.p_value < MOST_P_VALUE:
            return f"{'mostly' if one.share >= MOST else 'many'} {trait_words(one.trait)}"
    return ""


def _tops(rows: Table, num_tokens: int) -> dict[int, NDArray[np.integer]]:
    """Layer -> (T,) most probable groups, in the order of the layers."""
    layers = np.unique(rows["layer"].to_numpy())
    return dict(zip(layers.tolist(), placed(rows, layers, num_tokens, "top_group"), strict=True))
