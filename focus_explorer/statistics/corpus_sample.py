"""A corpus -> the sample its pooled statistics are computed from; the unit is the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import Part
from focus_explorer.statistics.run_sample import scheme
from focus_explorer.statistics.sample import Groups, Sample, Scheme
from focus_runtime.text.tagging import CLASSES, class_numbers

if TYPE_CHECKING:
    from focus_explorer.data.corpus import CorpusData

NOT_TAGGED = "The words are not tagged: categories are from English word lists."
NO_RANDOM = "The corpus was analysed without random centroids, so that baseline is missing."


def corpus_sample(corpus: CorpusData) -> Sample:
    """Read all layers of a corpus.

    Memory: about 20 bytes for each token and layer.

    Raises:
        NotFoundError: the corpus has no documents.
    """
    tokens, config = corpus.tokens(), corpus.row["config"]
    document, position = (tokens[name].to_numpy() for name in ("document", "position"))
    place = np.arange(document.size)
    pieces = tokens["piece"].to_pylist()
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(piece, len(numbers)) for piece in pieces], dtype=np.int64)
    tagged = tokens["pos"].null_count == 0
    _, units = np.unique(document, return_inverse=True)
    focus, random = _groups(corpus)
    notes = ([] if tagged else [NOT_TAGGED]) + ([] if random is not None else [NO_RANDOM])
    schemes = {name: scheme(tokens[name].to_pylist()) for name in ("pos", "dep")} if tagged else _listed(pieces, units)
    return Sample(
        layers=corpus.layer_numbers,
        num_groups=config["num_groups"],
        parts=[corpus.parts[layer] for layer in corpus.layer_numbers],
        focus=focus,
        random=random,
        pieces=list(numbers),
        piece=codes,
        schemes=schemes,
        units=units.astype(np.int64),
        unit="document",
        starts=place - position,
        notes=tuple(notes),
    )


def _listed(pieces: list[str], units: NDArray[np.int64]) -> dict[str, Scheme]:
    """Word classes document by document, so that none reaches into the next."""
    borders = np.flatnonzero(np.diff(units)) + 1
    parts = np.split(np.arange(len(pieces)), borders)
    codes = np.concatenate([class_numbers([pieces[place] for place in part]) for part in parts])
    return {"word": Scheme(list(CLASSES), codes)}


def _groups(corpus: CorpusData) -> tuple[Groups, Groups | None]:
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
