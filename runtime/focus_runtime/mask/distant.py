"""Distant pairs: those in a layer's reach, beyond a head's window, whose key is none of the first tokens (sinks).

The groups alone decide them. The share of them that is kept is, wherever it stands for a layer, the mean over the heads
that have some; heads with full attention keep all of theirs. Importing it costs little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from focus_runtime.mask.rule import PairRule


def distant_pairs(rule: PairRule, num_tokens: int) -> int:
    """Distant pairs of one head in a text of so many tokens.

    Args:
        rule: window, sinks and the layer's own sliding window.
        num_tokens: T.
    """
    queries = np.arange(num_tokens, dtype=np.int64)
    first = np.maximum(rule.num_sinks, queries - rule.farthest(num_tokens))
    return int((rule.nearest_far(queries) - first).clip(0).sum())


def distant_dropped(dropped: float, rule: PairRule, num_tokens: int) -> float:
    """Distant pairs that a head drops: all that it drops but those out of the layer's reach.

    Args:
        dropped: pairs counted as `dropped`, of one head or mean over heads of one rule.
        rule, num_tokens: as in `distant_pairs`.
    """
    return dropped - rule.unreached(num_tokens)


def distant_kept(dropped: float, rule: PairRule, num_tokens: int) -> float | None:
    """Share of a head's distant pairs that it keeps; None where it has none.

    Args:
        dropped, rule, num_tokens: as in `distant_dropped`.
    """
    pairs = distant_pairs(rule, num_tokens)
    return 1.0 - distant_dropped(dropped, rule, num_tokens) / pairs if pairs else None


def mean_of_some(values: Sequence[float | None], weights: Sequence[float] | None = None) -> float | None:
    """Mean of the values that are neither None nor NaN; None where there is none.

    Args:
        values: of a layer, part of its heads or text each.
        weights: of each, such as its heads; all alike when None.
    """
    pairs = zip(values, [1.0] * len(values) if weights is None else weights, strict=True)
    some = [(value, weight) for value, weight in pairs if value is not None and not math.isnan(value)]
    return sum(value * weight for value, weight in some) / sum(weight for _, weight in some) if some else None
