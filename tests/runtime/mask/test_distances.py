"""Pairs by distance against a double loop over the definition."""

from __future__ import annotations

import numpy as np
import pytest

from focus_runtime.config import CONSTANT
from focus_runtime.mask import counts
from focus_runtime.mask.counts import pair_totals
from focus_runtime.mask.distances import count_by_distance, distance_bins, distant_kept, distant_pairs, shuffled_sharing
from focus_runtime.mask.rule import CAUSES, PairRule
from tests.runtime.mask.double_loop import cause, draw


@pytest.mark.parametrize(
    ("growth", "sliding"),
    [(CONSTANT, None), (CONSTANT, 1), (CONSTANT, 61), (CONSTANT, 23), ((3, 61), None), ((3, 61), 23), ((20, 45), 61)],
)
@pytest.mark.parametrize(("window", "sinks", "table"), [(0, 0, 1 << 24), (6, 3, 130), (100, 2, 1), (5, 90, 1 << 24)])
def test_distances_equal_a_double_loop(monkeypatch, fresh_seed, window, sinks, table, sliding, growth):
    rule, reach = PairRule(window, sinks, sliding, growth), sliding or 61
    monkeypatch.setattr(counts, "TABLE_ENTRIES", table)
    membership, _ = draw(fresh_seed, 61)
    counted = count_by_distance(membership, rule)
    expected = np.zeros((5, 61), dtype=np.int64)
    for i in range(61):
        for j in range(i + 1):
            expected[CAUSES.index(cause(membership, i, j, rule)), i - j] += 1
    far = [(i, j) for i in range(61) for j in range(sinks, i - rule.near(i)) if i - j < reach]
    shared = sum(bool(membership[i] & membership[j]) for i, j in far)
    assert counted.distant_kept == (pytest.approx(shared / len(far)) if far else None)
    assert distant_pairs(rule, 61) == len(far)
    dropped = int(pair_totals(membership[None], [rule])[0, CAUSES.index("dropped")])
    assert distant_kept(dropped, rule, 61) == counted.distant_kept
    assert counted.first[0] == 0
    assert counted.last[-1] == 60
    np.testing.assert_array_equal(counted.first[1:], counted.last[:-1] + 1)
    for number, (first, last) in enumerate(zip(counted.first, counted.last, strict=True)):
        np.testing.assert_array_equal(counted.counts[:, number], expected[:, first : last + 1].sum(axis=1))
        here = [(i, j) for i in range(61) for j in range(i + 1) if first <= i - j <= last]
        kept = sum(i - j < reach and (i - j <= rule.near(i) or j < sinks) for i, j in here)
        assert counted.window_only[number] == pytest.approx(kept / expected[:, first : last + 1].sum())


@pytest.mark.slow
def test_the_null_is_the_mean_over_shuffles(fresh_seed):
    membership, generator = draw(fresh_seed, 40, groups=3)
    others = [(i, j) for i in range(40) for j in range(40) if i != j]
    sharing = np.mean([bool(membership[i] & membership[j]) for i, j in others])
    assert shuffled_sharing(membership) == pytest.approx(sharing)
    shares, beyond = [], []
    for _ in range(2000):
        counted = count_by_distance(generator.permutation(membership), PairRule(3, 2, 30))
        shares.append(1 - counted.counts[-1] / counted.counts.sum(axis=0))
        beyond.append(counted.distant_kept)
    assert abs(np.mean(beyond) - sharing) < 5 * np.std(beyond) / np.sqrt(len(beyond))
    error = 5 * np.std(shares, axis=0) / np.sqrt(len(shares)) + 1e-9
    assert (np.abs(np.mean(shares, axis=0) - count_by_distance(membership, PairRule(3, 2, 30)).shuffled) < error).all()


def test_bins_cover_every_distance_once_for_any_length():
    for total in (1, 2, 3, 17, 1000):
        rules = [PairRule(8, 2, 13), PairRule(500, 0, None), PairRule(30, 0, None, (10, 100))]
        first, last = distance_bins(total, rules)
        assert {cut for cut in (9, 13, 31, 301, 501) if cut < total} <= set(first.tolist())
        assert set(distance_bins(total)[0].tolist()) <= set(first.tolist())
        assert np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]).tolist() == list(
            range(total)
        )


def test_full_attention_keeps_all_of_them():
    rule = PairRule(3, 2, 9)
    dropped = int(pair_totals(np.ones((1, 40), dtype=np.int64), [rule])[0, CAUSES.index("dropped")])
    assert distant_kept(dropped, rule, 40) == 1.0
