"""Which pairs of tokens may attend to each other, and why; importing it costs little. As tensors: allowed_pairs.py.

Pair (i, j) is allowed when j <= i and (membership[i] & membership[j] or i - j <= near(i) or j < num_sinks). In a layer
with a sliding window of its own it is allowed only if i - j < sliding_window too. near(i) is the window, or where
windows grow, window * clamp(i, first, last) // first: in proportion to the position between two positions.
Causes, disjoint: `local_only` (near, no shared group), `group_only` (shared group, far), `local_and_group`,
`sink_only` (far, no shared group, j is a sink), `dropped`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from focus_runtime.budget import MAX_WHOLE
from focus_runtime.config import CONSTANT, FocusConfig, grown_window
from focus_runtime.errors import ConfigError

CAUSES = ("local_only", "group_only", "local_and_group", "sink_only", "dropped")


@dataclass(frozen=True, slots=True)
class PairRule:
    """Pairs that the hard mask allows whatever their groups; positions count from the first real token.

    Attributes:
        window: w, pairs with i - j <= w are allowed.
        sliding_window: tokens that the layer's own attention reaches, the query's own among them; None for all.
        growth: positions of queries from which to which the window grows; `CONSTANT` for a window that does not.
    """

    window: int
    num_sinks: int = 0
    sliding_window: int | None = None
    growth: tuple[int, int] = CONSTANT

    @classmethod
    def of(cls, config: FocusConfig, window: int, sliding_window: int | None = None) -> PairRule:
        """The rule of heads with this window."""
        return cls(window, config.num_sinks, sliding_window, config.growth)

    @property
    def grows(self) -> bool:
        """Whether queries may have windows of different length."""
        return self.growth[0] < self.growth[1] and self.window > 0

    def near(self, position: Any) -> Any:
        """Largest distance at which a pair of a query is allowed whatever its groups.

        Args:
            position: of the query, or of several: an int, or an int64 array or tensor.
        """
        first, last = self.growth
        most = MAX_WHOLE if self.sliding_window is None else self.sliding_window - 1
        if isinstance(position, int):
            return min(grown_window(self.window, self.growth, position), most)
        return (self.window * position.clip(first, last) // first).clip(0, most)

    def nearest_far(self, position: Any) -> Any:
        """First key that a query sees whatever the groups, sinks aside; below 0 none. From 0 on it never falls."""
        return position - self.near(position)

    def farthest(self, num_tokens: int) -> int:
        """Largest distance of any allowed pair in a text of so many tokens; at least 0."""
        longest = max(0, num_tokens - 1)
        return longest if self.sliding_window is None else min(longest, self.sliding_window - 1)

    def unreached(self, num_tokens: int) -> int:
        """Causal pairs of a text of so many tokens that the layer's own attention does not reach either."""
        distances = max(0, num_tokens - 1 - self.farthest(num_tokens))
        return distances * (distances + 1) // 2


@dataclass(frozen=True, slots=True)
class Extent:
    """What the host must know of memberships without looking.

    Attributes:
        top_k: the most groups that a token has.
        beyond: some tokens may have more than `top_k` all the same, as tokens do that belong to every group; only the
            kernels of attention/cuda/grouped.py take that, and compute those few queries apart.
    """

    num_groups: int
    top_k: int
    uniform: bool
    beyond: bool = False


def group_label(index: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def group_number(label: str) -> int:
    """The group of a letter, or of a number counted from 0."""
    if label.isascii() and label.isdecimal():
        return int(label)
    if not re.fullmatch("[A-Za-z]+", label):
        raise ConfigError(f"{label!r} is no group", expected="a letter such as B, or a number counted from 0")
    number = 0
    for letter in label.upper():
        number = 26 * number + ord(letter) - 64
    return number - 1
