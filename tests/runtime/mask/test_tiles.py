"""Tiles of the mask against a double loop over the definition."""

from __future__ import annotations

import numpy as np
import pytest

from focus_runtime.mask import counts as pairs
from focus_runtime.mask.counts import count_pairs, count_tile
from focus_runtime.mask.rule import CAUSES, PairRule
from tests.runtime.mask.double_loop import cause, draw


@pytest.mark.parametrize(("table", "edges"), [(1 << 24, 1 << 21), (40, 1 << 21), (1 << 24, 7)])
def test_a_tile_equals_a_double_loop(monkeypatch, fresh_seed, table, edges):
    monkeypatch.setattr(pairs, "TABLE_ENTRIES", table)
    monkeypatch.setattr(pairs, "EDGES_AT_ONCE", edges)
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


@pytest.mark.parametrize("sliding", [None, 400, 100, 10, 1])
def test_the_whole_as_one_tile_is_the_stored_count(fresh_seed, sliding):
    membership, _ = draw(fresh_seed, 333)
    rule = PairRule(20, 4, sliding)
    stored = count_pairs(membership, rule, block_size=7)
    np.testing.assert_array_equal(count_tile(membership, (0, 333), (0, 333), rule, 7), stored.counts)
