"""FocusConfig: every setting that decides which token pairs attend to each other."""

from __future__ import annotations

import bisect
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from focus_runtime.budget import MAX_WHOLE, HeadCounts, HeadException, HeadGroup, HeadSetting, head_groups, read_budget
from focus_runtime.errors import ConfigError

MAX_GROUPS = 63  # membership is a signed 64-bit integer with one bit per group
MAX_ITERATIONS = 1000  # of Sinkhorn's normalisation: twenty are enough
TEMPERATURES = (1e-6, 1e6)  # beyond, scores are no numbers in float32
CHOICES = {
    "normalisation": ("sinkhorn", "softmax"),
    "assignment": ("causal", "sinkhorn"),
    "gate": ("log", "paper"),
}
BACKENDS = ("auto", "reference", "masked", "decomposed", "fused", "decode", "flex")  # of focus_attention
SLIDING_LAYERS = ("auto", "own", "focus")  # what layers with a sliding window do, see `compose`
DTYPES = ("float32", "bfloat16", "float16")  # that a frozen model may be loaded in
SPECIAL_TOKENS = ("auto", "none")  # what a text begins with, see focus_runtime/text/special.py
CONSTANT = (1, 1)  # growth of windows that do not grow
GROWTH = "two positions from 1 on, the second not the smaller, such as 1024 and 8192: windows grow between them"

MINIMA = {
    "num_groups": 1,
    "routing_dim": 1,
    "top_k": 1,
    "window": 0,
    "num_sinks": 0,
    "sinkhorn_iterations": 1,
    "text_sinks_from": 0,
}


def is_growth(value: Any) -> bool:
    """Whether this is the first and the last position of a growth: whole numbers from 1 on, not the larger one first.

    Args:
        value: anything.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in value)
    return whole and 1 <= value[0] <= value[1] <= MAX_WHOLE


def grown_window(window: int, growth: tuple[int, int], position: int) -> int:
    """The window of a query where windows grow in proportion to the position.

    Args:
        window: at the start of a text.
        growth: first and last position.
        position: of the query.
    """
    first, last = growth
    return window * min(max(position, first), last) // first


def growth_words(growth: Sequence[int]) -> str:
    """How windows grow, such as "growing from token 1,024 to 8,192".

    Args:
        growth: first and last position.
    """
    first, last = growth
    return f"growing from token {first:,} to {last:,}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FocusConfig:
    """Settings of Focus for one model (symbols as in the paper, section 3).

    Attributes:
        num_groups: K, groups per layer.
        routing_dim: d_g, width of the routing space.
        top_k: k, groups a token belongs to at inference.
        window: w, pairs with i - j <= w are always allowed.
        window_growth: positions from which to which windows grow, those of the budget too: a query at position i has
            window * clamp(i, first, last) // first. None for windows of one length, as in the
            paper; twice the same number is read as that.
        num_sinks: first tokens that every token may attend to (0 in the paper).
        temperature: tau, divides the token-centroid scores.
        sinkhorn_iterations: N, column and row normalisations.
        normalisation: "sinkhorn" (balanced) or "softmax" in training.
        assignment: "causal" (stored column potentials, a token's groups never depend on later tokens)
            or "sinkhorn" (column sums over the whole text, as in the paper).
        gate: soft gate used in training: "log" adds log affinity to the logit, "paper" is equation 2.
        layers: layers with a router; None means every layer.
        budget: layers, key-value heads and query heads with another top-k or window, or with full attention.
        text_sinks: tokens whose input of a layer has at least this cosine similarity with the first token's belong to
            all groups from there on (composition/groups.py); None for none.
        text_sinks_from: first layer that looks for them: before it, inputs say which token it is, not whether it is a
            sink.
        logit_factors: every query head multiplies its logits by the factor that the centroids have for it, to the power
            of the share of the text beyond its window (composition/call.py).
    """

    num_groups: int = 4
    routing_dim: int = 16
    top_k: int = 2
    window: int = 128
    num_sinks: int = 4
    temperature: float = 0.1
    sinkhorn_iterations: int = 20
    normalisation: str = "sinkhorn"
    assignment: str = "causal"
    gate: str = "log"
    layers: tuple[int, ...] | None = None
    budget: tuple[HeadException, ...] = ()
    text_sinks: float | None = None
    text_sinks_from: int = 2
    logit_factors: bool = False
    window_growth: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name, minimum in MINIMA.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                raise ConfigError(f"{name} is {value!r}", expected=f"a whole number of at least {minimum}")
            if value > MAX_WHOLE:
                raise ConfigError(f"{name} is {value}", expected=f"at most {MAX_WHOLE}")
        if self.sinkhorn_iterations > MAX_ITERATIONS:
            raise ConfigError(
                f"sinkhorn_iterations is {self.sinkhorn_iterations}", expected=f"at most {MAX_ITERATIONS:,}"
            )
        if self.num_groups > MAX_GROUPS:
            raise ConfigError(f"num_groups is {self.num_groups}", expected=f"at most {MAX_GROUPS} groups")
        if self.top_k > self.num_groups:
            raise ConfigError(
                f"top_k is {self.top_k} but these centroids have {self.num_groups} groups",
                expected=f"top_k between 1 and {self.num_groups}",
                fix="choose a smaller top_k or a centroid file with more groups",
            )
        temperature = self.temperature
        if isinstance(temperature, bool) or not isinstance(temperature, int | float):
            raise ConfigError(f"temperature is {temperature!r}", expected="a number above 0")
        if not TEMPERATURES[0] <= temperature <= TEMPERATURES[1]:
            raise ConfigError(
                f"temperature is {temperature!r}", expected=f"a number from {TEMPERATURES[0]:g} to {TEMPERATURES[1]:g}"
            )
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", expected=" or ".join(allowed))
        sinks = self.text_sinks
        if sinks is not None and (isinstance(sinks, bool) or not isinstance(sinks, int | float) or not 0 < sinks <= 1):
            raise ConfigError(f"text_sinks is {sinks!r}", expected="a cosine similarity above 0, at most 1, or none")
        if not isinstance(self.logit_factors, bool):
            raise ConfigError(f"logit_factors is {self.logit_factors!r}", expected="true or false")
        if self.window_growth is not None:
            if not is_growth(self.window_growth):
                raise ConfigError(f"window_growth is {self.window_growth!r}", expected=f"{GROWTH}, or none")
            first, last = self.window_growth
            object.__setattr__(self, "window_growth", (first, last) if first < last else None)
        self._check_layers()
        self._check_budget()

    def _check_layers(self) -> None:
        if self.layers is None:
            return
        if not isinstance(self.layers, tuple | list):
            raise ConfigError(f"layers is {self.layers!r}", expected="a list of layer numbers, or none for every layer")
        layers = tuple(self.layers)
        if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in layers):
            raise ConfigError(f"layers is {list(layers)}", expected="layer numbers from 0 up")
        if len(set(layers)) != len(layers) or not layers:
            raise ConfigError(f"layers is {list(layers)}", expected="at least one layer, none twice")
        object.__setattr__(self, "layers", tuple(sorted(layers)))

    def _check_budget(self) -> None:
        object.__setattr__(self, "budget", read_budget(self.budget))
        for entry in self.budget:
            if self.layers is not None and entry.layer not in self.layers:
                raise ConfigError(
                    f"the budget names layer {entry.layer}, which has no router",
                    expected=f"layers {list(self.layers)}",
                )
            if entry.top_k is not None and entry.top_k > self.num_groups:
                raise ConfigError(
                    f"the budget gives {entry.place} top_k {entry.top_k} but there are {self.num_groups} groups",
                    expected=f"top_k between 0 and {self.num_groups}",
                )

    @property
    def growth(self) -> tuple[int, int]:
        """Positions from which to which windows grow; `CONSTANT` where they do not, which None leaves to a file."""
        return self.window_growth or CONSTANT

    @property
    def shortest_window(self) -> int:
        """The shortest window of any head, at the start of a text."""
        return min([self.window, *(entry.window for entry in self.budget if entry.window is not None)])

    @property
    def full_up_to(self) -> int:
        """Tokens of the longest text in which Focus is full attention whatever the groups.

        Windows and sinks of every head keep all pairs there, and factors of the logits do not act yet: they begin where
        a text is longer than a head's window.
        """
        window, (first, last) = self.shortest_window, self.growth
        near = partial(grown_window, window, self.growth)
        kept = near(last) + self.num_sinks + 1  # no later query sees every key
        grows_along = window >= first  # up to `last` a window is as long as the text before it
        if not grows_along:
            kept = bisect.bisect_right(range(kept), self.num_sinks, key=lambda position: position - near(position))
        if not self.logit_factors:
            return kept
        return min(kept, (window + 1) * last // first if grows_along else window + 1)

    def head_groups(self, layer: int, counts: HeadCounts) -> tuple[HeadGroup, ...]:
        """Heads of one layer by what they execute, the group of head 0 first.

        Args:
            layer: layer number.
            counts: heads of the layer.
        """
        return head_groups(self.budget, HeadSetting(self.top_k, self.window), layer, counts)

    def replace(self, **changes: Any) -> FocusConfig:
        """A copy with some settings changed, validated again."""
        unknown = set(changes) - {f.name for f in dataclasses.fields(self)}
        if unknown:
            raise ConfigError(f"unknown setting {sorted(unknown)[0]!r}", expected=_names())
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready values."""
        values = dataclasses.asdict(self)
        values["layers"] = None if self.layers is None else list(self.layers)
        if self.budget:
            values["budget"] = [entry.to_dict() for entry in self.budget]
        else:  # as before there were budgets, so that hashes of equal configurations stay equal
            del values["budget"]
        if self.text_sinks is None:
            del values["text_sinks"], values["text_sinks_from"]
        if not self.logit_factors:
            del values["logit_factors"]
        if self.window_growth is None:
            del values["window_growth"]
        else:
            values["window_growth"] = list(self.window_growth)
        return values

    def to_json(self) -> str:
        """One line of JSON with sorted keys, the same for equal configurations."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, values: Any) -> FocusConfig:
        """Read a configuration; unknown keys are refused rather than dropped.

        Raises:
            ConfigError: values is no mapping, has an unknown key, or a value is out of range.
        """
        if not isinstance(values, dict):
            raise ConfigError(f"the configuration is {type(values).__name__}", expected="a JSON object")
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]!r} in the configuration", expected=_names())
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> FocusConfig:
        """Inverse of `to_json`."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError: also numbers of thousands of digits
            raise ConfigError(f"the configuration is not JSON ({error})", expected="one JSON object") from error
        return cls.from_dict(values)


def _names() -> str:
    return "one of " + ", ".join(f.name for f in dataclasses.fields(FocusConfig))
