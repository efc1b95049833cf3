"""What statistics are computed from: the tokens of a run or a corpus as arrays, with their groups in every layer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from focus_runtime.mask.rule import PairRule


@dataclass(frozen=True, slots=True)
class Groups:
    """T tokens in L layers under one set of centroids.

    Attributes:
        tops: (L, T) most probable groups.
        membership: (L, T) int64 bit sets that the attention executed.
        confidence, entropy: (L, T) largest probability; entropy of the probabilities in nats.
    """

    tops: NDArray[np.uint8]
    membership: NDArray[np.int64]
    confidence: NDArray[np.float32]
    entropy: NDArray[np.float32]


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
    """

    shares: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """T tokens, L layers, K groups.

    Attributes:
        layers: layer numbers, in order.
        rules: of the mask that was executed, one for each layer.
        focus: the groups of the run or corpus; random: those of random centroids, None where they were not measured.
        pieces: V different texts of tokens; piece: (T,) numbers of them.
        schemes: name -> categories, `pos` and `dep` from a tagger or `word` from word lists.
        units: (T,) number of the unit that a resample takes or leaves, from 0; unit: what it is.
        starts: (T,) position where the token's document begins: no pair reaches beyond it.
        mass: full attention by centroids (`focus`, `random`), empty where it was not measured.
        notes: what a reader must know about the categories or units.
    """

    layers: list[int]
    num_groups: int
    rules: list[PairRule]
    focus: Groups
    random: Groups | None
    pieces: list[str]
    piece: NDArray[np.int64]
    schemes: dict[str, Scheme]
    units: NDArray[np.int64]
    unit: str
    starts: NDArray[np.int64]
    mass: dict[str, MassByQuery] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def num_tokens(self) -> int:
        """T."""
        return int(self.piece.size)
