"""Budgets: layers and heads that differ from a configuration's uniform top-k and window, or attend fully.

A budget is a tuple of exceptions. An exception for a query head wins over one for its key-value head, and that over one
for the whole layer.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from focus_runtime.errors import ConfigError

MAX_WHOLE = 2**31 - 1  # larger windows overflow integer tensors and mean nothing more
SHOWN_DIGITS = 6  # of a digest in labels
MAX_INDEX = 9999  # of a layer or head, as in a centroid file's names
EXPECTED = 'such as {"layer": 8, "head": 0, "full": true} or {"layer": 3, "top_k": 2, "window": 256}'


class HeadCounts(NamedTuple):
    """Key-value heads and query heads of a layer; equally many query heads share each key-value head."""

    key: int
    query: int

    @property
    def shared_by(self) -> int:
        """Query heads that share a key-value head."""
        return self.query // self.key


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadException:
    """Other settings for one layer, for one key-value head of it and the query heads that share it, or for one of them.

    Attributes:
        top_k: k, 0 for no groups: the window and the first tokens alone, no text sinks; the configuration's when None.
    """

    layer: int
    head: int | None = None
    query_head: int | None = None  # query head; all heads of the layer where both are None
    top_k: int | None = None
    window: int | None = None  # w; the configuration's when None
    full: bool = False

    def __post_init__(self) -> None:
        limits = dict.fromkeys(("layer", "head", "query_head"), MAX_INDEX) | {"top_k": MAX_WHOLE, "window": MAX_WHOLE}
        for name, most in limits.items():
            value = getattr(self, name)
            if value is None and name != "layer":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise ConfigError(f"the budget's {name} is {value!r}", expected=f"a whole number from 0 to {most}")
        if self.head is not None and self.query_head is not None:
            raise ConfigError(
                f"the budget names head {self.head} and query_head {self.query_head} in one exception",
                expected="one of them: a key-value head, or a query head",
            )
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
        if self.query_head is not None:
            return f"layer {self.layer}, query head {self.query_head}"
        return f"layer {self.layer}" if self.head is None else f"layer {self.layer}, head {self.head}"

    @property
    def words(self) -> str:
        """What it gives, in words."""
        given = {"top-k": self.top_k, "window": self.window}
        return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None) or "full attention"

    def applied(self, setting: HeadSetting) -> HeadSetting:
        """What a head executes under this exception from a setting."""
        if self.full:
            return HeadSetting(0, 0, full=True)
        top_k = setting.top_k if self.top_k is None else self.top_k
        return HeadSetting(top_k, setting.window if self.window is None else self.window)

    def to_dict(self) -> dict[str, Any]:
        """What is set, JSON-ready."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value is not None and value is not False}


@dataclass(frozen=True, order=True, slots=True)
class HeadSetting:
    """What some heads of a layer execute."""

    top_k: int  # k; 0 for no groups, and where `full`
    window: int  # w; 0 where `full`
    full: bool = False


@dataclass(frozen=True, slots=True)
class HeadGroup:
    """Heads of a layer that share one setting.

    Attributes:
        by_query: the numbers are of query heads; so in all groups of a layer where some that share one differ.
    """

    setting: HeadSetting
    heads: tuple[int, ...]  # numbers of key-value heads, each with the query heads that share it, unless `by_query`
    by_query: bool = False


def read_budget(values: Any) -> tuple[HeadException, ...]:
    """Exceptions from JSON values or as they are, in order of layer and head."""
    if not isinstance(values, list | tuple):
        raise ConfigError(f"the budget is {type(values).__name__}", expected=f"a list of exceptions, {EXPECTED}")
    budget = [entry if isinstance(entry, HeadException) else _read_exception(entry) for entry in values]
    places = Counter(entry.place for entry in budget)
    twice = next((place for place, count in places.items() if count > 1), None)
    if twice is not None:
        raise ConfigError(f"the budget names {twice} twice", expected="each layer and head once")
    return tuple(sorted(budget, key=lambda entry: (entry.layer, _rank(entry), entry.head or 0, entry.query_head or 0)))


def budget_digest(entries: Iterable[Any]) -> str:
    """What tells a budget from others: 12 hexadecimal digits of the sha256 of its JSON."""
    return hashlib.sha256(json.dumps(list(entries)).encode()).hexdigest()[:12]


def budget_name(entries: Sequence[Any]) -> str:
    """How labels call a budget, such as "budget of 3 exceptions (9f3ac1)"; the digits begin its `budget_digest`."""
    exceptions = f"{len(entries):,} exception{'s' * (len(entries) != 1)}"
    return f"budget of {exceptions} ({budget_digest(entries)[:SHOWN_DIGITS]})"


def budget_words(budget: Iterable[HeadException]) -> str:
    """A budget in one line, such as "layer 8, head 0: full attention; layer 9: window 16"."""
    return "; ".join(f"{entry.place}: {entry.words}" for entry in budget)


def _rank(entry: HeadException) -> int:
    """Of two exceptions for the same head the one of higher rank wins."""
    return 2 if entry.query_head is not None else int(entry.head is not None)


def head_groups(
    budget: Iterable[HeadException], usual: HeadSetting, layer: int, counts: HeadCounts
) -> tuple[HeadGroup, ...]:
    """Heads of one layer by what they execute; heads of equal settings are together, the group of head 0 first."""
    settings = [usual] * counts.query
    for entry in sorted((entry for entry in budget if entry.layer == layer), key=_rank):
        for head in heads_of(entry, counts):
            settings[head] = entry.applied(usual)
    by_query = any(
        settings[head] != settings[head - head % counts.shared_by] for head in range(counts.query)
    )  # else key-value heads say the same in fewer numbers
    units = settings if by_query else settings[:: counts.shared_by]
    together = {setting: tuple(head for head, own in enumerate(units) if own == setting) for setting in units}
    return tuple(HeadGroup(setting, heads, by_query) for setting, heads in together.items())


def heads_of(entry: HeadException, counts: HeadCounts) -> range:
    """The query heads that an exception is for; none where the layer lacks its head."""
    if entry.query_head is not None:
        return range(entry.query_head, min(entry.query_head + 1, counts.query))
    if entry.head is None:
        return range(counts.query)
    return range(entry.head * counts.shared_by, min((entry.head + 1) * counts.shared_by, counts.query))


def query_numbers(group: HeadGroup, counts: HeadCounts) -> list[int]:
    """The query heads of a group, ascending."""
    if group.by_query:
        return list(group.heads)
    return [head * counts.shared_by + number for head in group.heads for number in range(counts.shared_by)]


def query_settings(groups: Iterable[HeadGroup], counts: HeadCounts) -> list[HeadSetting]:
    """What each query head of a layer executes."""
    settings: dict[int, HeadSetting] = {}
    for group in groups:
        settings |= dict.fromkeys(query_numbers(group, counts), group.setting)
    return [settings[head] for head in range(counts.query)]


def to_budget(
    settings: Mapping[tuple[int, int], HeadSetting], usual: HeadSetting, shared_by: int = 1
) -> tuple[HeadException, ...]:
    """Settings of heads as exceptions from a usual one, in the order of `read_budget`.

    Args:
        settings: by layer and query head, of all heads of a layer or none.
        shared_by: query heads that share a key-value head; where they agree, the exception is the key-value head's.
    """
    exceptions = []
    for (layer, head), setting in sorted(settings.items()):
        first = head - head % shared_by
        agree = all(settings[layer, other] == setting for other in range(first, first + shared_by))
        if setting == usual or (agree and head != first):
            continue
        changed: dict[str, Any] = {"full": True}
        if not setting.full:
            top_k = setting.top_k if setting.top_k != usual.top_k else None
            changed = {"top_k": top_k, "window": setting.window if setting.window != usual.window else None}
        place: dict[str, Any] = {"head": head // shared_by} if agree else {"query_head": head}
        exceptions.append(HeadException(layer=layer, **place, **changed))
    return read_budget(exceptions)


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
