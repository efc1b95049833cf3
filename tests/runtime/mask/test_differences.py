"""Pairs that differ between two masks, against the masks themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.mask.counts import gained_and_lost
from focus_runtime.mask.dense import allowed_pairs
from focus_runtime.mask.rule import PairRule


def dense(bits, rule):
    position = torch.arange(bits.size)
    return allowed_pairs(torch.from_numpy(bits), torch.from_numpy(bits), position, position, rule).numpy()


@pytest.mark.parametrize("total", [1, 7, 300, 513])
@pytest.mark.parametrize("block", [1, 5, 300])
def test_they_are_the_differences_of_the_masks(total, block, fresh_seed):
    draw = np.random.default_rng(fresh_seed)
    before, after = (draw.integers(0, 8, total) for _ in range(2))
    rules = PairRule(9, 2, None, (50, 200)), PairRule(int(draw.integers(0, 40)), 0, 60)
    old, new = dense(before, rules[0]), dense(after, rules[1])
    counts = gained_and_lost(before, rules[0], after, rules[1], block)
    edges = np.arange(0, total, block)
    for kind, pairs in enumerate((new & ~old, old & ~new)):
        expected = np.add.reduceat(np.add.reduceat(pairs.astype(int), edges, axis=0), edges, axis=1)
        np.testing.assert_array_equal(counts[kind], expected)
