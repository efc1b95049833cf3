"""Which pairs of tokens may attend to each other, and why; importing it costs nothing. As tensors: dense.py.

Pair (i, j) is allowed when j <= i and (membership[i] & membership[j] or i - j <= window or j < num_sinks). In a layer
with a sliding window of its own it is allowed only if i - j < sliding_window too.
Causes, disjoint: `local_only` (near, no shared group), `group_only` (shared group, far), `local_and_group`,
`sink_only` (far, no shared group, j is a sink), `dropped`.
"""

from __future__ import annotations

from dataclasses import dataclass

CAUSES = ("local_only", "group_only", "local_and_group", "sink_only", "dropped")


@dataclass(frozen=True, slots=True)
class PairRule:
    """Pairs that the hard mask allows whatever their groups; positions count from the first real token.

    Attributes:
        window: w, pairs with i - j <= w are allowed.
        num_sinks: s, keys j < s are allowed.
        sliding_window: tokens that the layer's own attention reaches, the query's own among them; None for all.
    """

    window: int
    num_sinks: int = 0
    sliding_window: int | None = None

    @property
    def near(self) -> int:
        """Largest distance at which a pair is allowed whatever its groups."""
        return self.window if self.sliding_window is None else min(self.window, self.sliding_window - 1)

    def farthest(self, num_tokens: int) -> int:
        """Largest distance of any allowed pair in a text of so many tokens; at least 0.

        Args:
            num_tokens: T.
        """
        longest = max(0, num_tokens - 1)
        return longest if self.sliding_window is None else min(longest, self.sliding_window - 1)

    def unreached(self, num_tokens: int) -> int:
        """Causal pairs of a text of so many tokens that the layer's own attention does not reach either.

        Args:
            num_tokens: T.
        """
        distances = max(0, num_tokens - 1 - self.farthest(num_tokens))
        return distances * (distances + 1) // 2
