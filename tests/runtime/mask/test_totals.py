"""Pair totals of several layers against the counts in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from focus_runtime.mask.counts import count_pairs, pair_totals
from focus_runtime.mask.rule import CAUSES, PairRule


@pytest.mark.parametrize(("groups", "top_k"), [(3, 1), (12, 4), (40, 2)])
def test_pair_totals_are_the_exact_counts(fresh_seed, groups, top_k):
    generator = np.random.default_rng(fresh_seed)
    for length, window, sinks in ((1, 0, 4), (2, 5, 1), (37, 4, 3), (60, 0, 0), (90, 89, 2), (90, 20, 200)):
        order = generator.random((3, length, groups)).argsort(axis=2)[:, :, :top_k]
        membership = np.left_shift(np.int64(1), order.astype(np.int64)).sum(axis=2)
        membership[2, ::3] = 0  # tokens without a group
        own, growth = PairRule(window, sinks), (int(generator.integers(1, 40)), 50)
        grown = [PairRule(window, sinks, None, growth), PairRule(window, sinks, 30, growth), own]
        for rules in ([own] * 3, [PairRule(window, sinks, 11), own, PairRule(window, sinks, 60)], grown):
            counted = [count_pairs(row, rule) for row, rule in zip(membership, rules, strict=True)]
            expected = [[layer.total(cause) for cause in CAUSES] for layer in counted]
            np.testing.assert_array_equal(pair_totals(membership, rules), expected)
