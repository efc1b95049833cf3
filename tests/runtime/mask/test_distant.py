"""Distant pairs against a double loop over their definition."""

from __future__ import annotations

import numpy as np
import pytest

from focus_runtime.config import CONSTANT
from focus_runtime.mask.counts import pair_totals
from focus_runtime.mask.distances import distant_dropped, distant_kept, distant_pairs
from focus_runtime.mask.rule import CAUSES, PairRule
from tests.runtime.mask.double_loop import draw


@pytest.mark.parametrize("growth", [CONSTANT, (3, 61), (20, 45)])
@pytest.mark.parametrize("sliding", [None, 1, 4, 23, 61])
@pytest.mark.parametrize(("window", "sinks"), [(0, 0), (6, 3), (100, 2), (5, 90), (3, 40)])
def test_distant_pairs_are_those_the_groups_decide(fresh_seed, window, sinks, sliding, growth):
    rule, reach = PairRule(window, sinks, sliding, growth), sliding or 61
    membership, _ = draw(fresh_seed, 61)
    far = [(i, j) for i in range(61) for j in range(sinks, i) if rule.near(i) < i - j < reach]
    shared = sum(bool(membership[i] & membership[j]) for i, j in far)
    dropped = int(pair_totals(membership[None], [rule])[0, CAUSES.index("dropped")])
    assert distant_pairs(rule, 61) == len(far)
    assert distant_dropped(dropped, rule, 61) == len(far) - shared
    assert distant_kept(dropped, rule, 61) == (pytest.approx(shared / len(far)) if far else None)


def test_full_attention_keeps_all_of_them():
    rule = PairRule(3, 2, 9)
    dropped = int(pair_totals(np.ones((1, 40), dtype=np.int64), [rule])[0, CAUSES.index("dropped")])
    assert distant_kept(dropped, rule, 40) == 1.0
