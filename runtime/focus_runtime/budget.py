"""Budgets: layers and key-value heads that differ from a configuration's uniform top-k and window, or attend fully.

A budget is a tuple of exceptions. An exception for a head wins over one for its whole layer.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from focus_runtime.errors import ConfigError

MAX_WHOLE = 2**31 - 1  # larger windows overflow integer tensors and mean nothing more
MAX_INDEX = 9999  # of a layer or head, as in a centroid file's names
EXPECTED = 'such as {"layer": 8, "head": 0, "full": true} or {"layer": 3, "top_k": 2, "window": 256}'


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadException:
    """Other settings for one layer, or for one key-value head of it and the query heads that share it.

    Attributes:
        layer: layer number.
        head: key-value head; None for all heads of the layer.
        top_k: k; the configuration's when None.
        window: w; the configuration's when None.
        full: full attention, without top-k and window.
    """

    layer: int
    head: int | None = None
    top_k: int | None = None
    window: int | None = None
    full: bool = False

    def __post_init__(self) -> None:
        _check_whole("layer", self.layer, 0, MAX_INDEX)
        if self.head is not None:
            _check_whole("head", self.head, 0, MAX_INDEX)
        if self.top_k is not None:
            _check_whole("top_k", self.top_k, 1, MAX_WHOLE)
        if self.window is not None:
            _check_whole("window", self.window, 0, MAX_WHOLE)
        if not isinstance(self.full, bool):
            raise ConfigError(f"the budget's full is {self.full!r}", expected="true or false")
        if self.full and (self.top_k is not None or self.window is not None):
            raise ConfigError(
                f"the budget gives {self.place} full attention and a top_k or window too", expected="one of them"
            )
        if not self.full and self.top_k is None and self.window is None:
            raise ConfigError(f"the budget says nothing about {self.place}", expected="top_k, window or full")

    @property
    def place(self) -> str:
        """Where it applies, in words."""
        return f"layer {self.layer}" if self.head is None else f"layer {self.layer}, head {self.head}"

    def to_dict(self) -> dict[str, Any]:
        """What is set, JSON-ready."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value is not None and value is not False}


@dataclass(frozen=True, order=True, slots=True)
class HeadSetting:
    """What some key-value heads of a layer execute.

    Attributes:
        top_k: k; 0 where `full`.
        window: w; 0 where `full`.
        full: full attention.
    """

    top_k: int
    window: int
    full: bool = False


@dataclass(frozen=True, slots=True)
class HeadGroup:
    """Key-value heads of a layer that share one setting.

    Attributes:
        setting: what they execute.
        heads: their numbers, ascending.
    """

    setting: HeadSetting
    heads: tuple[int, ...]


def read_budget(values: Any) -> tuple[HeadException, ...]:
    """Exceptions from JSON values or as they are, in order of layer and head.

    Args:
        values: a sequence of `HeadException` or of mappings of their attributes.

    Raises:
        ConfigError: it is none, an entry cannot be read, or two are for the same place.
    """
    if not isinstance(values, list | tuple):
        raise ConfigError(f"the budget is {type(values).__name__}", expected=f"a list of exceptions, {EXPECTED}")
    budget = [entry if isinstance(entry, HeadException) else _read_exception(entry) for entry in values]
    places = Counter(entry.place for entry in budget)
    twice = next((place for place, count in places.items() if count > 1), None)
    if twice is not None:
        raise ConfigError(f"the budget names {twice} twice", expected="each layer and head once")
    return tuple(sorted(budget, key=lambda entry: (entry.layer, -1 if entry.head is None else entry.head)))


def head_groups(
    budget: Iterable[HeadException], usual: HeadSetting, layer: int, num_heads: int
) -> tuple[HeadGroup, ...]:
    """Heads of one layer by what they execute; heads of equal settings are together, the group of head 0 first.

    Args:
        budget: exceptions, of all layers.
        usual: top-k and window of heads without an exception.
        layer: layer number.
        num_heads: key-value heads of the layer.
    """
    settings = [usual] * num_heads
    own = [entry for entry in budget if entry.layer == layer]
    for entry in sorted(own, key=lambda entry: entry.head is not None):
        for head in range(num_heads) if entry.head is None else (entry.head,):
            if head < num_heads:
                settings[head] = _changed(usual, entry)
    together = {setting: tuple(head for head in range(num_heads) if settings[head] == setting) for setting in settings}
    return tuple(HeadGroup(setting, heads) for setting, heads in together.items())


def to_budget(settings: Mapping[tuple[int, int], HeadSetting], usual: HeadSetting) -> tuple[HeadException, ...]:
    """Settings of heads as exceptions from a usual one.

    Args:
        settings: by layer and key-value head.
        usual: of heads without an exception.
    """
    exceptions = []
    for (layer, head), setting in sorted(settings.items()):
        if setting == usual:
            continue
        if setting.full:
            exceptions.append(HeadException(layer=layer, head=head, full=True))
            continue
        top_k = setting.top_k if setting.top_k != usual.top_k else None
        window = setting.window if setting.window != usual.window else None
        exceptions.append(HeadException(layer=layer, head=head, top_k=top_k, window=window))
    return tuple(exceptions)


def _changed(usual: HeadSetting, entry: HeadException) -> HeadSetting:
    if entry.full:
        return HeadSetting(0, 0, full=True)
    top_k = usual.top_k if entry.top_k is None else entry.top_k
    return HeadSetting(top_k, usual.window if entry.window is None else entry.window)


def _read_exception(values: Any) -> HeadException:
    if not isinstance(values, dict):
        raise ConfigError(f"the budget holds {type(values).__name__}", expected=EXPECTED)
    known = {field.name for field in dataclasses.fields(HeadException)}
    unknown = sorted(str(name) for name in set(values) - known)
    if unknown:
        raise ConfigError(f"the budget has the unknown setting {unknown[0]!r}", expected=EXPECTED)
    if "layer" not in values:
        raise ConfigError("the budget has an exception without a layer", expected=EXPECTED)
    return HeadException(**values)


def _check_whole(name: str, value: Any, minimum: int, maximum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ConfigError(f"the budget's {name} is {value!r}", expected=f"a whole number from {minimum} to {maximum}")
