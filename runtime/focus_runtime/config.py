"""The settings that decide which token pairs attend to each other (`FocusConfig` has all of them, `FocusSettings` those
that replace a centroid file's), and how a text is analysed with them (`TextOptions`)."""

from __future__ import annotations

import bisect
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from focus_runtime.budget import (
    MAX_WHOLE,
    HeadCounts,
    HeadException,
    HeadGroup,
    HeadSetting,
    budget_name,
    budget_words,
    head_groups,
    read_budget,
)
from focus_runtime.errors import ConfigError

MAX_GROUPS = 63  # membership is a signed 64-bit integer with one bit per group
TEMPERATURES = (1e-6, 1e6)  # beyond, scores are no numbers in float32
BACKENDS = ("auto", "reference", "masked", "decomposed", "fused", "decode", "flex")  # of focus_attention
SLIDING_LAYERS = ("auto", "own", "focus")  # what layers with a sliding window do, see `compose`
DTYPES = ("float32", "bfloat16", "float16")  # that a frozen model may be loaded in
SPECIAL_TOKENS = ("auto", "none")  # what a text begins with, see focus_runtime/text/special.py
CONSTANT = (1, 1)  # growth of windows that do not grow
GROWTH = "two positions from 1 on, the second not the smaller, such as 1024 and 8192: windows grow between them"


@dataclass(frozen=True)
class Setting:
    """How a field of `FocusConfig` is checked, and the words that users see for it."""

    check: Callable[[str, Any], Any]  # of its name and a value: the value to keep; raises ConfigError
    title: str  # heads its row in a table and its field on the page
    meaning: str  # explains it beside its option and its field
    shown: Callable[[Any], str] = str  # writes a value into a table
    line: Callable[[Any], str] | None = None  # into a line, "" to leave it out. None: no pair depends on it.
    choices: tuple[str, ...] = ()  # the words it may be, where these are few


def setting(default: Any, check: Callable[[str, Any], Any], title: str, meaning: str, **how: Any) -> Any:
    """A field of `FocusConfig`; see `Setting`."""
    return field(default=default, metadata={"setting": Setting(check, title, meaning, **how)})


def whole(least: int, most: int = MAX_WHOLE) -> Callable[[str, Any], int]:
    """Whole numbers between two."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{name} is {value!r}", expected=f"a whole number of at least {least}")
        if value > most:
            raise ConfigError(f"{name} is {value}", expected=f"at most {most:,}")
        return value

    return check


def choice(*choices: str, title: str, meaning: str, **how: Any) -> Any:
    """A field that is one of a few words, the first by default."""

    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise ConfigError(f"{name} is {value!r}", expected=" or ".join(choices))
        return str(value)

    return setting(choices[0], check, title, meaning, choices=choices, **how)


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}", expected="true or false")
    return value


def _temperature(name: str, value: Any) -> Any:
    low, high = TEMPERATURES
    if not _is_number(value) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}", expected=f"a number from {low:g} to {high:g}")
    return value


def _similarity(name: str, value: Any) -> Any:
    if value is not None and (not _is_number(value) or not 0 < value <= 1):
        raise ConfigError(f"{name} is {value!r}", expected="a cosine similarity above 0, at most 1, or none")
    return value


def _growth(name: str, value: Any) -> tuple[int, int] | None:
    if value is not None and not is_growth(value):
        raise ConfigError(f"{name} is {value!r}", expected=f"{GROWTH}, or none")
    return None if value is None else (value[0], value[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _layers(name: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, tuple | list):
        raise ConfigError(f"{name} is {value!r}", expected="a list of layer numbers, or none for every layer")
    layers = tuple(value)
    if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in layers):
        raise ConfigError(f"{name} is {list(layers)}", expected="layer numbers from 0 up")
    if len(set(layers)) != len(layers) or not layers:
        raise ConfigError(f"{name} is {list(layers)}", expected="at least one layer, none twice")
    return tuple(sorted(layers))


def is_growth(value: Any) -> bool:
    """Whether this is the first and the last position of a growth: whole numbers from 1 on, in that order."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in value)
    return whole and 1 <= value[0] <= value[1] <= MAX_WHOLE


def grown_window(window: int, growth: tuple[int, int], position: int) -> int:
    """The window of a query at a position, of windows of that length at the start of a text."""
    first, last = growth
    return window * min(max(position, first), last) // first


def growth_words(growth: Sequence[int]) -> str:
    """How windows grow, such as "growing from token 1,024 to 8,192"."""
    first, last = growth
    return f"growing from token {first:,} to {last:,}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FocusSettings:
    """Settings that a user chooses in place of the centroid file's; None keeps the file's own.

    The page's form, the command line and the API build one, and it goes as it is down to `compose`. A setting added
    here, and to `FocusConfig`, reaches all of them."""

    top_k: int | None = None
    window: int | None = None
    num_sinks: int | None = None
    window_growth: tuple[int, int] | None = None  # (1, 1) for windows of one length
    assignment: str | None = None
    budget: Sequence[HeadException] | None = None  # empty for no heads with settings of their own
    logit_factors: bool | None = None

    def __post_init__(self) -> None:
        for name, value in self.chosen().items():
            object.__setattr__(self, name, DECLARED[name].check(name, value))

    @classmethod
    def from_config(cls, config: FocusConfig, **more: Any) -> Self:
        """What executes a configuration again, but for `more`; the centroids decide whether they have factors."""
        names = [name for name in SETTINGS if name != "logit_factors"]
        executed = {name: getattr(config, name) for name in names} | {"window_growth": config.growth}
        return cls(**(executed | more))

    def chosen(self) -> dict[str, Any]:
        """The settings that are not left to the centroid file."""
        values = {name: getattr(self, name) for name in SETTINGS}
        return {name: value for name, value in values.items() if value is not None}

    def of(self, config: FocusConfig) -> FocusConfig:
        """A centroid file's configuration with what was chosen in its place."""
        return config.replace(**self.chosen())


SETTINGS = tuple(one.name for one in dataclasses.fields(FocusSettings))


@dataclass(frozen=True, kw_only=True, slots=True)
class TextOptions(FocusSettings):
    """How a text is analysed, alone or as a document of a corpus, which is neither timed nor changed."""

    backend: str = "auto"
    max_tokens: int | None = None  # longer texts are cut here. None: no limit.
    special_tokens: str = "auto"  # what the tokenizer puts before a text, such as BOS; "none" for no token
    repeats: int | None = None  # timed repeats of each mode. None: 5, or as few as 3 where they take long.
    seed: int = 0  # that random centroids were drawn from
    attention_mass: bool = False  # also measure how much of full attention's probability the mask keeps
    changes: tuple[str, ...] = ()  # made by hand to what Focus does, as texts, see composition/changes.py

    def __post_init__(self) -> None:
        FocusSettings.__post_init__(self)
        if self.max_tokens is not None and self.max_tokens < 2:
            raise ConfigError(f"max_tokens is {self.max_tokens}", expected="at least 2")
        if self.repeats is not None and self.repeats < 1:
            raise ConfigError(f"repeats is {self.repeats}", expected="at least 1")
        if self.backend not in BACKENDS:
            raise ConfigError(f"backend is {self.backend!r}", expected="one of " + ", ".join(BACKENDS))
        if self.special_tokens not in SPECIAL_TOKENS:
            raise ConfigError(f"special_tokens is {self.special_tokens!r}", expected=" or ".join(SPECIAL_TOKENS))


@dataclass(frozen=True, kw_only=True, slots=True)
class FocusConfig:
    """Settings of Focus for one model (symbols as in the paper, section 3); each says what it means, and some more:

    Attributes:
        window: w, pairs with i - j <= w are always allowed.
        window_growth: positions from which to which windows grow, those of the budget too: a query at position i has
            window * clamp(i, first, last) // first. None for windows of one length, as in the paper; twice the same
            number is read as that.
        num_sinks: 0 in the paper.
        normalisation: "sinkhorn" (balanced) or "softmax" in training.
        assignment: "causal" (stored column potentials, a token's groups never depend on later tokens)
            or "sinkhorn" (column sums over the whole text, as in the paper).
        gate: "log" adds log affinity to the logit, "paper" is equation 2.
        layers: None means every layer.
        text_sinks: tokens whose input of a layer has at least this cosine similarity with the first token's belong to
            all groups from there on (composition/groups.py); None: no text sinks.
        text_sinks_from: before this layer, inputs say which token it is, not whether it is a sink.
        logit_factors: every query head multiplies its logits by the factor that the centroids have for it, to the power
            of the share of the text beyond its window (composition/factors.py).
    """

    num_groups: int = setting(4, whole(1, MAX_GROUPS), "Groups", "groups in every layer, K", line="K={}".format)
    routing_dim: int = setting(16, whole(1), "Routing size", "width of the routing space, d_g")
    top_k: int = setting(2, whole(1), "Top-k", "groups a token belongs to", line="top-k {}".format)
    window: int = setting(
        128,
        whole(0),
        "Window",
        "tokens this near always attend, in heads without a window of their own",
        line="window {}".format,
    )
    num_sinks: int = setting(
        4, whole(0), "Sinks", "first tokens that all may see", line=lambda count: f"{count:,} sink{'s' * (count != 1)}"
    )
    temperature: float = setting(0.1, _temperature, "Temperature", "divides the scores of tokens and centroids")
    sinkhorn_iterations: int = setting(
        20, whole(1, 1000), "Balancing steps", "N: normalisations of columns and rows; twenty are enough"
    )
    normalisation: str = choice("sinkhorn", "softmax", title="Balancing", meaning="of groups in training")
    assignment: str = choice(
        "causal",
        "sinkhorn",
        title="Assignment",
        meaning="causal never looks at later tokens; sinkhorn balances over the whole text",
        line="{} assignment".format,
    )
    gate: str = choice("log", "paper", title="Gate", meaning="soft gate of training")
    layers: tuple[int, ...] | None = setting(None, _layers, "Layers", "layers with groups")
    text_sinks: float | None = setting(
        None,
        _similarity,
        "Sinks in the text",
        "tokens of the text that all may see",
        shown=lambda least: "none" if least is None else f"from a cosine similarity of {least:g}",
        line=lambda least: "" if least is None else f"text sinks from a cosine similarity of {least:g}",
    )
    text_sinks_from: int = setting(
        2, whole(0), "Sinks in the text, from layer", "first layer that looks for them", line=lambda _: ""
    )
    logit_factors: bool = setting(
        False,
        _truth,
        "Factors of the logits",
        "whether every query head multiplies its logits by a learned factor",
        shown=lambda used: "one for each query head" if used else "none",
        line=lambda used: "factors of the logits" if used else "",
    )
    window_growth: tuple[int, int] | None = setting(
        None,
        _growth,
        "Growth of windows",
        "positions from which to which all windows grow, such as 1024 8192; 1 1 for windows of one length",
        shown=lambda growth: growth_words(growth) if growth else "none",
        line=lambda growth: f"windows {growth_words(growth)}" if growth else "",
    )
    budget: tuple[HeadException, ...] = setting(
        (),
        lambda _, value: read_budget(value),
        "Budget",
        "layers and heads with a top-k or window of their own, or with full attention",
        shown=lambda budget: budget_words(read_budget(budget)) or "none",
        line=lambda budget: budget_name(budget) if budget else "",
    )

    def __post_init__(self) -> None:
        for name, declared in DECLARED.items():
            object.__setattr__(self, name, declared.check(name, getattr(self, name)))
        if self.window_growth is not None and self.window_growth[0] == self.window_growth[1]:
            object.__setattr__(self, "window_growth", None)
        if self.top_k > self.num_groups:
            raise ConfigError(
                f"top_k is {self.top_k} but these centroids have {self.num_groups} groups",
                expected=f"top_k between 1 and {self.num_groups}",
                fix="choose a smaller top_k or a centroid file with more groups",
            )
        for entry in self.budget:
            if self.layers is not None and entry.layer not in self.layers:
                raise ConfigError(
                    f"the budget names layer {entry.layer}, which has no router", expected=f"layers {list(self.layers)}"
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

        Windows and sinks of every head keep all pairs there, and factors of the logits do not act yet.
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
        """Heads of one layer by what they execute, the group of head 0 first."""
        return head_groups(self.budget, HeadSetting(self.top_k, self.window), layer, counts)

    def replace(self, **changes: Any) -> FocusConfig:
        """A copy with some settings changed, validated again."""
        unknown = set(changes) - set(DECLARED)
        if unknown:
            raise ConfigError(f"unknown setting {sorted(unknown)[0]!r}", expected=_names())
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready values."""
        values = dataclasses.asdict(self) | {"budget": [entry.to_dict() for entry in self.budget]}
        for name in ("layers", "window_growth"):
            values[name] = list(values[name]) if values[name] else None
        # left out as before there were these settings, so that hashes of equal configurations stay equal
        unused = {name for name in ("budget", "text_sinks", "logit_factors", "window_growth") if not values[name]}
        if self.text_sinks is None:
            unused.add("text_sinks_from")
        return {name: value for name, value in values.items() if name not in unused}

    def to_json(self) -> str:
        """One line of JSON with sorted keys, the same for equal configurations."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, values: Any) -> FocusConfig:
        """Read a configuration; ConfigError for no mapping, an unknown key, and a value out of range."""
        if not isinstance(values, dict):
            raise ConfigError(f"the configuration is {type(values).__name__}", expected="a JSON object")
        unknown = sorted(set(values) - set(DECLARED))
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


DECLARED: dict[str, Setting] = {one.name: one.metadata["setting"] for one in dataclasses.fields(FocusConfig)}


def setting_words(config: Mapping[str, Any]) -> str:
    """What decides the pairs of a configuration as JSON has it, such as "K=8, top-k 1, window 64, 4 sinks"."""
    lines = [declared.line(config[name]) for name, declared in DECLARED.items() if declared.line and name in config]
    return ", ".join(line for line in lines if line)


def setting_rows(configs: Sequence[FocusConfig]) -> list[tuple[str, list[str]]]:
    """(setting, its value in each configuration) of what decides the pairs, as far as one of them uses it."""
    used = {name for config in configs for name in config.to_dict()}
    return [
        (f"{declared.title}: {declared.meaning}", [declared.shown(getattr(config, name)) for config in configs])
        for name, declared in DECLARED.items()
        if declared.line and name in used
    ]


def _names() -> str:
    return "one of " + ", ".join(DECLARED)
