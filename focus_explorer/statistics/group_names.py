"""A name for every group of every layer of a run, from what its tokens have in common, or that nothing is clear.

A group is named after the trait with the highest phi (see group_traits.py) of those that at least `LEAST_SHARE` of its
tokens have, if that phi is at least `LEAST_PHI` and above what any group of random centroids reaches in the same layer,
where these were measured, and if chance explains it in less than one of `1 / MOST_P_VALUE` groups.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pyarrow import Table

from focus_explorer.data.placed import placed
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.statistics.group_traits import Association, associations, token_traits
from focus_runtime.store.database import Database

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
class GroupName:
    """What a group holds.

    Attributes:
        name: such as "mostly pronouns"; empty where nothing is clear.
        evidence: the traits with the highest phi, at most `EVIDENCE`; empty for a group of too few tokens.
    """

    name: str
    evidence: tuple[Association, ...]


@dataclass(frozen=True, slots=True)
class RunNames:
    """The names of a run's groups.

    Attributes:
        layers: L layer numbers.
        names: L x K.
        traits: how many were tried.
        random: by layer, the highest phi of any group of random centroids; None where these were not measured.
    """

    layers: tuple[int, ...]
    names: tuple[tuple[GroupName, ...], ...]
    traits: int
    random: tuple[float | None, ...]


def trait_words(trait: str) -> str:
    """A trait in words; a piece between quotation marks, its spaces and line ends visible."""
    if not trait.startswith("piece:"):
        return WORDS[trait]
    piece = json.dumps(trait.removeprefix("piece:"), ensure_ascii=False)[1:-1]
    return f"“{piece.replace(chr(92) + chr(34), chr(34)).replace(' ', '␣')}”"


def run_names(database: Database, run_id: str) -> RunNames:
    """Names of the groups of a stored run.

    Args:
        database: has the run.
        run_id: of the run.

    Raises:
        NotFoundError: there is no such run.
    """
    fetch_run(database, run_id)
    measured = fetch(database, "measured", run_id=run_id)["random_seed"][0].as_py()
    return _run_names(database, run_id, measured)


@lru_cache(maxsize=KEPT_RUNS)  # a stored run never changes but for its baseline, whose seed tells whether there is one
def _run_names(database: Database, run_id: str, random_seed: int | None) -> RunNames:
    groups = json.loads(fetch_run(database, run_id)["config"])["num_groups"]
    traits = token_traits(fetch(database, "tokens", run_id=run_id)["piece"].to_pylist())
    own = _tops(fetch(database, "top_groups", run_id=run_id), len(traits.flags))
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
