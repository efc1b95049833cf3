"""The definition of the mask, one pair at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from focus_runtime.mask.rule import PairRule


def cause(membership, i, j, rule):
    """Why pair (i, j), j <= i, is allowed; from the definition in METHOD section 3."""
    window, sinks = rule.window, rule.num_sinks
    if rule.sliding_window is not None and i - j >= rule.sliding_window:
        return "dropped"
    first, last = rule.growth
    near = i - j <= window * max(first, min(i, last)) // first
    shared = bool(int(membership[i]) & int(membership[j]))
    if near:
        return "local_and_group" if shared else "local_only"
    if shared:
        return "group_only"
    return "sink_only" if j < sinks else "dropped"


growths = st.builds(lambda first, more: (first, first + more), st.integers(1, 30), st.integers(0, 30))
rules = st.builds(PairRule, st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(1, 45), growths)
memberships = st.lists(st.integers(0, 31), min_size=1, max_size=40).map(np.array)


def draw(seed, total, groups=5):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 1 << groups, total), generator
