"""What statistics are computed from: the tokens of a run or a corpus as arrays, with their groups in every layer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.data.parts import Part, head_memberships, placed, run_parts, sums_by_part
from focus_explorer.data.queries import fetch, fetch_run, fetch_several
from focus_runtime.store.database import Database
from focus_runtime.text.tagging import CLASSES, class_numbers, sentences

if TYPE_CHECKING:
    from focus_explorer.data.corpus import CorpusData

NEEDED = (
    "all_assignments",
    "pieces",
    "token_tags",
    "baseline_assignments",
    "baseline_head_memberships",
    "attention_queries",
    "attention_mass",
    "parts",
    "all_head_memberships",
)
CAUSES = ("local", "sinks", "grouped", "dropped")
NO_TAGGER = (
    "The words are not tagged: categories are from English word lists and sentences from punctuation. "
    "`focus-explorer statistics` tags them where the tagger is installed."
)
CORPUS_NOT_TAGGED = "The words are not tagged: categories are from English word lists."
CORPUS_NO_RANDOM = "The corpus was analysed without random centroids, so that baseline is missing."
NO_RANDOM = "Random centroids were not run on this text, so that baseline is missing. `focus-explorer statistics` does."


@dataclass(frozen=True, slots=True)
class Groups:
    """T tokens in L layers under one set of centroids.

    Attributes:
        tops: (L, T) most probable groups.
        membership: (L, T) int64 bit sets of the configuration's top-k.
        confidence, entropy: (L, T) largest probability; entropy of the probabilities in nats.
        others: (place of the layer, number of the part) -> (T,) bit sets of heads with another top-k.
    """

    tops: NDArray[np.uint8]
    membership: NDArray[np.int64]
    confidence: NDArray[np.float32]
    entropy: NDArray[np.float32]
    others: dict[tuple[int, int], NDArray[np.int64]] = field(default_factory=dict)

    def executed(self, place: int, part: Part) -> NDArray[np.int64]:
        """(T,) bit sets that the attention of a part executed: one group of all tokens under full attention."""
        bits = self.membership[place]
        return np.ones_like(bits) if part.full else self.others.get((place, part.number), bits)


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to sort tokens into categories: C names and (T,) numbers of them."""

    names: list[str]
    codes: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class MassByQuery:
    """Share of full attention's probability by cause, mean over heads.

    Attributes:
        shares: (L, n, 4) of the first n tokens: local, sinks, grouped, dropped.
        far: layer by layer, grouped and dropped together, summed over the heads of each part; None where it is not
            known by head.
    """

    shares: NDArray[np.float64]
    far: tuple[NDArray[np.float64], ...] | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """T tokens, L layers, K groups."""

    layers: list[int]
    num_groups: int
    parts: list[tuple[Part, ...]]  # heads of each layer by the setting they executed
    focus: Groups  # of the run or corpus
    random: Groups | None  # of random centroids; None: not measured
    pieces: list[str]  # V different texts of tokens
    piece: NDArray[np.int64]  # (T,) numbers of them
    schemes: dict[str, Scheme]  # name -> categories, `pos` and `dep` from a tagger or `word` from word lists
    units: NDArray[np.int64]  # (T,) number of the unit that a resample draws or leaves, from 0
    unit: str  # what it is
    starts: NDArray[np.int64]  # (T,) position where the token's document begins: no pair reaches beyond it
    mass: dict[str, MassByQuery] = field(default_factory=dict)  # by centroids (`focus`, `random`), if measured
    notes: tuple[str, ...] = ()  # what a reader must know about the categories or units

    @property
    def num_tokens(self) -> int:
        """T."""
        return int(self.piece.size)


def run_sample(database: Database, run_id: str) -> Sample:
    """The sample of a stored run; its unit is the sentence."""
    run = fetch_run(database, run_id)
    config, count = json.loads(run["config"]), run["num_tokens"]
    rows = fetch_several(database, NEEDED, run_id=run_id)
    layers = np.unique(rows["all_assignments"]["layer"].to_numpy())
    parts = run_parts(config, rows["parts"])
    of_layers = [parts[layer] for layer in layers.tolist()]
    pieces, tags, random = rows["pieces"]["piece"].to_pylist(), rows["token_tags"], rows["baseline_assignments"]
    tagged = tags.num_rows == count
    return _sample(
        pieces,
        tags if tagged else None,
        documents=np.zeros(count, dtype=np.int64),
        units=tags["sentence"].to_numpy() if tagged else sentences(pieces),
        missing=(NO_TAGGER, NO_RANDOM),
        layers=layers.tolist(),
        num_groups=config["num_groups"],
        parts=of_layers,
        focus=_groups(rows["all_assignments"], rows["all_head_memberships"], layers, count),
        random=_groups(random, rows["baseline_head_memberships"], layers, count) if random.num_rows else None,
        unit="sentence",
        starts=np.zeros(count, dtype=np.int64),
        mass=_mass(rows["attention_queries"], _far(rows["attention_mass"], layers, of_layers), layers),
    )


def corpus_sample(corpus: CorpusData) -> Sample:
    """The sample of a corpus; its unit is the document. Takes about 20 bytes of memory for each token and layer."""
    tokens = corpus.tokens()
    document, position = (tokens[name].to_numpy() for name in ("document", "position"))
    focus, random = _corpus_groups(corpus)
    return _sample(
        tokens["piece"].to_pylist(),
        None if tokens["pos"].null_count else tokens,
        documents=document,
        units=document,
        missing=(CORPUS_NOT_TAGGED, CORPUS_NO_RANDOM),
        layers=corpus.layer_numbers,
        num_groups=corpus.row["config"]["num_groups"],
        parts=[corpus.parts[layer] for layer in corpus.layer_numbers],
        focus=focus,
        random=random,
        unit="document",
        starts=np.arange(document.size) - position,
    )


def _sample(
    pieces: list[str],
    tags: pa.Table | None,
    *,
    documents: NDArray[np.integer],
    units: NDArray[np.integer],
    missing: tuple[str, str],
    **fields: Any,
) -> Sample:
    """A sample with its pieces, categories and units numbered; `tags` are None where the tokens were not tagged."""
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(piece, len(numbers)) for piece in pieces], dtype=np.int64)
    if tags is not None:
        schemes = {name: _scheme(tags[name].to_pylist()) for name in ("pos", "dep")}
    else:  # word classes document by document, so that none reaches into the next
        borders = np.flatnonzero(np.diff(documents)) + 1
        parts = np.split(np.arange(len(pieces)), borders)
        classes = np.concatenate([class_numbers([pieces[place] for place in part]) for part in parts])
        schemes = {"word": Scheme(list(CLASSES), classes)}
    absent = (tags is None, fields["random"] is None)
    return Sample(
        pieces=list(numbers),
        piece=codes,
        schemes=schemes,
        units=np.unique(units, return_inverse=True)[1].astype(np.int64),
        notes=tuple(note for note, is_absent in zip(missing, absent, strict=True) if is_absent),
        **fields,
    )


def _scheme(labels: list[str]) -> Scheme:
    """Categories in the order of their names, so that the same text gives the same numbers."""
    names, codes = np.unique(np.array(labels, dtype=str), return_inverse=True)
    return Scheme([str(name) for name in names], codes.astype(np.uint8))


def _groups(rows: pa.Table, own: pa.Table, layers: NDArray[np.int64], count: int) -> Groups:
    return Groups(
        placed(rows, layers, count, "top_group").astype(np.uint8),
        placed(rows, layers, count, "membership"),
        placed(rows, layers, count, "confidence").astype(np.float32),
        placed(rows, layers, count, "entropy").astype(np.float32),
        {
            (int(np.searchsorted(layers, layer)), part): bits
            for (layer, part), bits in head_memberships(own, count).items()
        },
    )


def _far(
    rows: pa.Table, layers: NDArray[np.int64], parts: list[tuple[Part, ...]]
) -> tuple[NDArray[np.float64], ...] | None:
    """Attention beyond window and sinks by layer and part, from that of every head."""
    layer, far = rows["layer"].to_numpy(), rows["grouped"].to_numpy() + rows["dropped"].to_numpy()
    if not np.array_equal(np.unique(layer), layers):
        return None
    return tuple(sums_by_part(far[layer == number], own) for number, own in zip(layers, parts, strict=True))


def _mass(
    rows: pa.Table, far: tuple[NDArray[np.float64], ...] | None, layers: NDArray[np.int64]
) -> dict[str, MassByQuery]:
    mass = {}
    for centroids in ("focus", "random"):
        selected = rows.filter(pa.compute.equal(rows["centroids"], centroids))
        if selected.num_rows:
            values = np.stack([selected[name].to_numpy() for name in CAUSES], axis=1)
            place = np.searchsorted(layers, selected["layer"].to_numpy()), selected["position"].to_numpy()
            shares = np.zeros((layers.size, int(place[1].max()) + 1, len(CAUSES)))
            shares[place] = values
            mass[centroids] = MassByQuery(shares, far if centroids == "focus" else None)
    return mass


def stored_measurements(database: Database, run_id: str) -> dict[str, Any]:
    """Tagger, seed of the random centroids and tokens with attention of a run; None for what was not measured."""
    rows = fetch(database, "measured", run_id=run_id).to_pylist()
    return rows[0] if rows else {}


def _corpus_groups(corpus: CorpusData) -> tuple[Groups, Groups | None]:
    focus: dict[str, list[NDArray[Any]]] = {name: [] for name in ("tops", "membership", "confidence", "entropy")}
    random: dict[str, list[NDArray[Any]]] = {name: [] for name in ("tops", "membership")}
    own: dict[tuple[int, int], NDArray[Any]] = {}
    random_own: dict[tuple[int, int], NDArray[Any]] = {}
    for place, layer in enumerate(corpus.each_layer()):
        own |= _by_part(place, corpus.parts[layer.layer], layer.others)
        random_own |= _by_part(place, corpus.parts[layer.layer], layer.random_others)
        focus["tops"].append(layer.top_group.astype(np.uint8))
        focus["membership"].append(narrow(layer.membership))
        focus["confidence"].append(layer.confidence)
        focus["entropy"].append(layer.entropy)
        if layer.random_top_group is not None and layer.random_membership is not None:
            random["tops"].append(layer.random_top_group.astype(np.uint8))
            random["membership"].append(narrow(layer.random_membership))
    groups = Groups(**{name: np.stack(parts) for name, parts in focus.items()}, others=own)
    if not random["tops"]:
        return groups, None
    unknown = np.full_like(groups.confidence, np.nan)  # a corpus keeps no probabilities of random centroids
    return groups, Groups(np.stack(random["tops"]), np.stack(random["membership"]), unknown, unknown, random_own)


def _by_part(
    place: int, parts: Sequence[Part], others: Mapping[int, NDArray[np.int64]]
) -> dict[tuple[int, int], NDArray[Any]]:
    """Bit sets of the heads with another top-k than the configuration's, as `Groups.others` has them."""
    return {
        (place, part.number): narrow(others[part.top_k])
        for part in parts
        if part.top_k is not None and part.top_k in others
    }


def narrow(membership: NDArray[np.int64]) -> NDArray[Any]:
    """The same bit sets in as few bytes as they need."""
    most = int(membership.max(initial=0))
    return membership.astype(
        next(kind for kind in (np.int8, np.int16, np.int32, np.int64) if most <= np.iinfo(kind).max)
    )
