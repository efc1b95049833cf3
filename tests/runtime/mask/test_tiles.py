"""Tiles of the mask and pairs by distance against a double loop over the definition."""

from __future__ import annotations

import numpy as np
import pytest

from focus_runtime.mask import tiles as pairs
from focus_runtime.mask.blocks import count_pairs
from focus_runtime.mask.distances import count_by_distance, distance_bins, shuffled_sharing
from focus_runtime.mask.rule import CAUSES
from focus_runtime.mask.tiles import count_tile
from tests.runtime.mask.test_rule import cause


def draw(seed, total, groups=5):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 1 << groups, total), generator


@pytest.mark.parametrize(("table", "edges"), [(1 << 24, 1 << 21), (40, 1 << 21), (1 << 24, 7)])
def test_a_tile_equals_a_double_loop(monkeypatch, fresh_seed, table, edges):
    monkeypatch.setattr(pairs, "TABLE_ENTRIES", table)
    monkeypatch.setattr(pairs, "EDGES_AT_ONCE", edges)
    membership, generator = draw(fresh_seed, 47)
    for _ in range(12):
        rows, keys = (sorted(generator.choice(48, 2, replace=False).tolist()) for _ in range(2))
        window, sinks, size = (int(generator.integers(low, 12)) for low in (0, 0, 1))
        found = count_tile(membership, tuple(rows), tuple(keys), window, sinks, size)
        expected = np.zeros_like(found)
        for i in range(*rows):
            for j in range(keys[0], min(keys[1], i + 1)):
                name = CAUSES.index(cause(membership, i, j, window, sinks))
                expected[name, (i - rows[0]) // size, (j - keys[0]) // size] += 1
        np.testing.assert_array_equal(found, expected)


def test_the_whole_as_one_tile_is_the_stored_count(fresh_seed):
    membership, _ = draw(fresh_seed, 333)
    stored = count_pairs(membership, 20, 4, block_size=7)
    np.testing.assert_array_equal(count_tile(membership, (0, 333), (0, 333), 20, 4, 7), stored.counts)


@pytest.mark.parametrize(("window", "sinks", "table"), [(0, 0, 1 << 24), (6, 3, 130), (100, 2, 1), (5, 90, 1 << 24)])
def test_distances_equal_a_double_loop(monkeypatch, fresh_seed, window, sinks, table):
    monkeypatch.setattr(pairs, "TABLE_ENTRIES", table)
    membership, _ = draw(fresh_seed, 61)
    found = count_by_distance(membership, window, sinks)
    expected = np.zeros((5, 61), dtype=np.int64)
    for i in range(61):
        for j in range(i + 1):
            expected[CAUSES.index(cause(membership, i, j, window, sinks)), i - j] += 1
    far = [(i, j) for i in range(61) for j in range(sinks, i - window)]
    assert found.beyond == len(far)
    assert found.beyond_shared == sum(bool(membership[i] & membership[j]) for i, j in far)
    assert found.first[0] == 0
    assert found.last[-1] == 60
    np.testing.assert_array_equal(found.first[1:], found.last[:-1] + 1)
    for number, (first, last) in enumerate(zip(found.first, found.last, strict=True)):
        np.testing.assert_array_equal(found.counts[:, number], expected[:, first : last + 1].sum(axis=1))
        kept = sum(i - j <= window or j < sinks for i in range(61) for j in range(i + 1) if first <= i - j <= last)
        assert found.window_only[number] == pytest.approx(kept / expected[:, first : last + 1].sum())


def test_the_null_is_the_mean_over_shuffles(fresh_seed):
    membership, generator = draw(fresh_seed, 40, groups=3)
    others = [(i, j) for i in range(40) for j in range(40) if i != j]
    sharing = np.mean([bool(membership[i] & membership[j]) for i, j in others])
    assert shuffled_sharing(membership) == pytest.approx(sharing)
    shares, beyond = [], []
    for _ in range(2000):
        found = count_by_distance(generator.permutation(membership), 3, 2)
        shares.append(1 - found.counts[-1] / found.counts.sum(axis=0))
        beyond.append(found.beyond_shared / found.beyond)
    assert abs(np.mean(beyond) - sharing) < 5 * np.std(beyond) / np.sqrt(len(beyond))
    error = 5 * np.std(shares, axis=0) / np.sqrt(len(shares)) + 1e-9
    assert (np.abs(np.mean(shares, axis=0) - count_by_distance(membership, 3, 2).shuffled) < error).all()


def test_bins_cover_every_distance_once_for_any_length():
    for total in (1, 2, 3, 17, 1000):
        first, last = distance_bins(total)
        assert np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]).tolist() == list(
            range(total)
        )
