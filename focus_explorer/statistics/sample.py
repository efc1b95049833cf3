"""What statistics are computed from: the tokens of a run or a corpus as arrays, with their groups in every layer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import Part


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
        """(T,) bit sets that the attention of a part executed: one group of all tokens under full attention.

        Args:
            place: of the layer.
            part: of its heads.
        """
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
    """T tokens, L layers, K groups.

    Attributes:
        layers: layer numbers, in order.
        parts: heads of each layer by the setting they executed.
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
    parts: list[tuple[Part, ...]]
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
