"""Pair counts and single pairs against a double loop over the definition."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_runtime.mask import counts as module
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.counts import count_pairs, count_tile, gained_and_lost, kept_pairs, pair_totals
from focus_runtime.mask.rule import CAUSES, PairRule
from tests.runtime.mask.double_loop import cause, draw, memberships, rules


@pytest.mark.parametrize(("table", "edges"), [(1 << 24, 1 << 21), (40, 1 << 21), (1 << 24, 7)])
def test_a_tile_equals_a_double_loop(monkeypatch, fresh_seed, table, edges):
    monkeypatch.setattr(module, "TABLE_ENTRIES", table)
    monkeypatch.setattr(module, "EDGES_AT_ONCE", edges)
    membership, generator = draw(fresh_seed, 47)
    for _ in range(12):
        rows, keys = (sorted(generator.choice(48, 2, replace=False).tolist()) for _ in range(2))
        window, sinks, size, reach = (int(generator.integers(low, 12)) for low in (0, 0, 1, 1))
        growth = (reach, reach + int(generator.integers(0, 40)))
        rule = PairRule(window, sinks, generator.choice([None, 2 * reach]), growth)
        counts = count_tile(membership, tuple(rows), tuple(keys), rule, size)
        expected = np.zeros_like(counts)
        for i in range(*rows):
            for j in range(keys[0], min(keys[1], i + 1)):
                name = CAUSES.index(cause(membership, i, j, rule))
                expected[name, (i - rows[0]) // size, (j - keys[0]) // size] += 1
        np.testing.assert_array_equal(counts, expected)


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


@pytest.mark.parametrize(("groups", "top_k"), [(3, 1), (12, 4), (40, 2)])
def test_pair_totals_are_the_exact_counts(fresh_seed, groups, top_k):
    generator = np.random.default_rng(fresh_seed)
    for length, window, sinks in ((1, 0, 4), (2, 5, 1), (37, 4, 3), (60, 0, 0), (90, 89, 2), (90, 20, 200)):
        order = generator.random((3, length, groups)).argsort(axis=2)[:, :, :top_k]
        membership = np.left_shift(np.int64(1), order.astype(np.int64)).sum(axis=2)
        membership[2, ::3] = 0  # tokens without a group
        own, growth = PairRule(window, sinks), (int(generator.integers(1, 40)), 50)
        grown = [PairRule(window, sinks, None, growth), PairRule(window, sinks, 30, growth), own]
        for by_layer in ([own] * 3, [PairRule(window, sinks, 11), own, PairRule(window, sinks, 60)], grown):
            counted = [count_pairs(row, rule) for row, rule in zip(membership, by_layer, strict=True)]
            expected = [[layer.total(cause) for cause in CAUSES] for layer in counted]
            np.testing.assert_array_equal(pair_totals(membership, by_layer), expected)


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
    for kind, changed in enumerate((new & ~old, old & ~new)):
        expected = np.add.reduceat(np.add.reduceat(changed.astype(int), edges, axis=0), edges, axis=1)
        np.testing.assert_array_equal(counts[kind], expected)


@pytest.mark.parametrize("cells", [1, 100, 1 << 22])
@pytest.mark.parametrize("groups", [3, 20, 40])
def test_every_kept_pair_has_its_cause(monkeypatch, fresh_seed, cells, groups):
    monkeypatch.setattr(module, "CELLS_AT_ONCE", cells)
    membership, generator = draw(fresh_seed, 53, groups=groups)
    membership &= generator.integers(0, 1 << groups, 53) & generator.integers(0, 1 << groups, 53)  # fewer shared groups
    for rule in (
        PairRule(4, 2),
        PairRule(0),
        PairRule(60, 3),
        PairRule(5, 3, 11),
        PairRule(20, 9, 7),
        PairRule(2, 1, 40, (9, 30)),
    ):
        for rows in ((0, 53), (17, 40), (52, 53)):
            expected = {
                (i, j): cause(membership, i, j, rule)
                for i in range(*rows)
                for j in range(i + 1)
                if cause(membership, i, j, rule) != "dropped"
            }
            actual = {}
            for piece in kept_pairs(membership, rule, rows):
                columns = (piece.query.tolist(), piece.key.tolist(), piece.cause.tolist())
                actual |= {(i, j): CAUSES[code] for i, j, code in zip(*columns, strict=True)}
            assert list(actual) == sorted(expected)
            assert actual == expected


@pytest.mark.slow
def test_a_long_text_needs_little_memory(fresh_seed):
    """100,000 tokens; the whole mask would have 5e9 cells."""
    membership, rule = draw(fresh_seed, 100_000, groups=4)[0], PairRule(128, 4)
    tracemalloc.start()
    pairs = sum(piece.key.size for piece in kept_pairs(membership, rule, (99_900, 100_000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs > 100 * 30_000
    assert peak < 200e6
