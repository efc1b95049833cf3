"""Distant pairs of a corpus, kept and in all, of the heads of every layer, and the share of them that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import Part
from focus_runtime.mask.distances import distant_pairs
from focus_runtime.measure.intervals import Interval, mean_interval

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DistantPairs:
    """Distant pairs (see mask/distances.py) of one head of each of P parts of heads in D documents.

    Attributes:
        kept, pairs: (D, P), parts layer by layer in the order of their numbers.
        heads, layers: (P,) how many heads each part has; its layer's number.
    """

    kept: Floats
    pairs: Floats
    heads: Floats
    layers: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Mapping[int, Sequence[Part]], dropped: Floats, tokens: NDArray[np.int64]) -> DistantPairs:
        """Those of documents.

        Args:
            parts: by layer.
            dropped: (D, P) pairs that one head of each drops.
            tokens: (D,) tokens of each document.
        """
        columns = [(layer, part) for layer, of_layer in parts.items() for part in of_layer]
        lengths, place = np.unique(tokens, return_inverse=True)
        pairs = np.empty((lengths.size, len(columns)))
        unreached = np.empty_like(pairs)
        for rule in {part.rule for _, part in columns}:
            own = [number for number, (_, part) in enumerate(columns) if part.rule == rule]
            pairs[:, own] = [[distant_pairs(rule, count)] for count in lengths.tolist()]
            unreached[:, own] = [[rule.unreached(count)] for count in lengths.tolist()]
        return cls(
            pairs[place] - (dropped - unreached[place]),
            pairs[place],
            np.array([part.weight for _, part in columns], dtype=np.float64),
            np.array([layer for layer, _ in columns]),
        )

    def share_kept(self, resamples: int) -> Interval | None:
        """Share kept of all documents together, mean over the heads that have distant pairs and over their layers, as
        Statistics has it; None where there are none.

        The interval is over documents, each standing for how far it moves the share (to first order).

        Args:
            resamples: of the bootstrap.
        """
        documents, parts = self.pairs.any(axis=1), self.pairs.any(axis=0)
        if not parts.any():
            return None
        kept, pairs, layers = self.kept[documents][:, parts], self.pairs[documents][:, parts], self.layers[parts]
        _, place = np.unique(layers, return_inverse=True)
        of_layer = np.bincount(place, weights=self.heads[parts])
        weights = self.heads[parts] / of_layer[place] / of_layer.size
        shares = kept.sum(axis=0) / pairs.sum(axis=0)
        moved = (kept - shares * pairs) / pairs.mean(axis=0) @ weights
        return mean_interval(shares @ weights + moved, resamples=resamples)
