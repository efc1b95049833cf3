"""Exact pair counts in blocks against a double loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_runtime.mask.counts import count_pairs
from focus_runtime.mask.rule import CAUSES, PairRule
from tests.runtime.mask.double_loop import cause, memberships, rules


def brute_force(membership, rule, size):
    blocks = -(-len(membership) // size)
    counts = {name: np.zeros((blocks, blocks), dtype=np.int64) for name in CAUSES}
    for i in range(len(membership)):
        for j in range(i + 1):
            counts[cause(membership, i, j, rule)][i // size, j // size] += 1
    return counts


@settings(max_examples=80, deadline=None)
@given(memberships, rules, st.integers(1, 45))
def test_counts_equal_a_double_loop(membership, rule, size):
    result = count_pairs(membership, rule, block_size=size)
    expected = brute_force(membership, rule, size)
    for index, name in enumerate(CAUSES):
        np.testing.assert_array_equal(result.counts[index], expected[name], err_msg=name)
        assert result.total(name) == expected[name].sum()
    total = len(membership) * (len(membership) + 1) // 2
    assert result.counts.sum() == total
    assert result.retained_pairs == pytest.approx(1 - expected["dropped"].sum() / total)


@pytest.mark.parametrize(("tokens", "most"), [(1, 128), (127, 128), (128, 128), (129, 128), (1000, 7)])
def test_default_block_size_is_the_smallest_that_fits(tokens, most):
    result = count_pairs(np.ones(tokens, dtype=np.int64), PairRule(3), max_blocks=most)
    assert result.counts.shape[1] <= most
    assert result.block_size == next(s for s in range(1, tokens + 1) if -(-tokens // s) <= most)


def test_blocks_above_the_diagonal_are_empty(fresh_seed):
    rng = np.random.default_rng(fresh_seed)
    counts = count_pairs(rng.integers(1, 16, 300), PairRule(20, 4), max_blocks=9).counts
    assert (np.triu(counts, 1) == 0).all()
    assert (counts >= 0).all()


def test_a_long_text_is_exact_and_needs_no_square_array(fresh_seed):
    """20,000 tokens; a T x T bool array would take 400 MB. One group per token: totals have a closed form."""
    rng = np.random.default_rng(fresh_seed)
    groups, window, total = rng.integers(0, 4, 20_000), 64, 20_000
    result = count_pairs(1 << groups, PairRule(window))
    same = sum(int(n) * (int(n) + 1) // 2 for n in np.bincount(groups))
    near_same = sum(int((groups[d:] == groups[: total - d]).sum()) for d in range(window + 1))
    assert result.total("group_only") == same - near_same
    assert result.total("local_and_group") == near_same
    assert result.counts.sum() == total * (total + 1) // 2


def test_the_highest_group_bit():
    membership = np.array([1 << 62, 1, 1 << 62, (1 << 62) + 1], dtype=np.int64)
    assert count_pairs(membership, PairRule(0)).total("group_only") == 4
