"""The result of one run as frozen NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_runtime.budget import HeadGroup
from focus_runtime.errors import ModelError
from focus_runtime.mask.counts import BlockCounts, count_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.loss import Predictions
from focus_runtime.text.tokens import TokenizedText


@dataclass(frozen=True)
class HeadTrace:
    """Heads of a layer that ran with one setting."""

    group: HeadGroup
    rule: PairRule
    membership: NDArray[np.int64]  # (T,) bit sets that attention executed; one group of all tokens where it is full

    @cached_property
    def counts(self) -> BlockCounts:
        """Pairs by cause in blocks, of one head."""
        return count_pairs(self.membership, self.rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerGroups:
    """What one pass decided in one layer: T tokens, K groups."""

    layer: int
    membership: NDArray[np.int64]  # (T,) bit sets of the usual top-k, which all heads without an exception executed
    probabilities: NDArray[np.float32]  # (T, K) float32
    heads: tuple[HeadTrace, ...]  # what was executed, by group of heads that share a setting

    @property
    def sliding_window(self) -> int | None:
        """Tokens that the layer's own attention reaches, the query's own among them. None: no limit."""
        return self.heads[0].rule.sliding_window

    @property
    def retained_pairs(self) -> float:
        """Allowed pairs over all causal pairs, mean over heads."""
        shares = [part.counts.retained_pairs for part in self.heads]
        return float(np.average(shares, weights=[len(part.group.heads) for part in self.heads]))

    @property
    def top_group(self) -> NDArray[np.int64]:
        """(T,) most probable group of each token."""
        return self.probabilities.argmax(axis=1)

    @property
    def entropy(self) -> NDArray[np.float32]:
        """(T,) entropy of each token's probabilities, in nats."""
        g = self.probabilities
        return np.asarray(-(g * np.log(np.clip(g, 1e-30, None))).sum(axis=1), dtype=np.float32)

    @property
    def dominance(self) -> float:
        """Share of tokens whose most probable group is the largest; 1/K is perfect balance."""
        return float(np.bincount(self.top_group).max() / self.top_group.size)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTrace(LayerGroups):
    """One layer of a run, routing size G."""

    attention_kind: str
    routing: NDArray[np.float32]  # (T, G) float32 routing vectors h W_g
    centroids: NDArray[np.float32]  # (K, G) float32
    potential: NDArray[np.float32]  # (K,) float32 column potential that was used
    attention_mass_retained: float | None = None  # of full attention, inside the mask, mean over heads, if measured


@dataclass(frozen=True, slots=True)
class Timing:
    """One repeat of one stage."""

    mode: str
    stage: str
    repeat: int
    milliseconds: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole run."""

    tokens: TokenizedText
    layers: list[LayerTrace]
    nll: dict[str, NDArray[np.float64]]  # mode ("full", "focus") -> (T-1,) float64 nats, entry t for token t+1
    timings: list[Timing]
    info: dict[str, Any]  # the row of the `runs` table that is known here (model, configuration, versions, ...)
    notes: list[str] = field(default_factory=list)
    predicted: dict[str, Predictions] = field(default_factory=dict)  # mode -> what it predicts for tokens 1 to T-1
    pieces: dict[int, str] = field(default_factory=dict)  # texts of the most probable tokens by id

    def check_finite(self) -> None:
        """Refuse a run whose numbers are none: a sum, a map or a page made from them would be none either."""
        half = self.info.get("dtype") == "float16"
        fix = "choose float32 or bfloat16" if half else "check the model's weights"
        for mode, name in (("full", "full attention"), ("focus", "Focus")):
            if not np.isfinite(self.nll[mode]).all():
                raise ModelError(f"losses under {name} are no numbers", expected="finite ones", fix=fix)
        for layer in self.layers:
            if not np.isfinite(layer.probabilities).all() or not np.isfinite(layer.routing).all():
                raise ModelError(f"scores of layer {layer.layer} are no numbers", expected="finite ones", fix=fix)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens.ids)

    def perplexity(self, mode: str) -> float:
        """exp of the mean negative log-likelihood of the scored tokens."""
        return float(np.exp(self.nll[mode].mean()))
