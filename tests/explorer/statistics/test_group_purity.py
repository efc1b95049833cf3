"""A group's purity, its interval and its null against plain definitions."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from focus_explorer.statistics.groups import group_purity_estimates, shuffled_group_purity
from focus_explorer.statistics.resample import Resampler
from focus_runtime.measure.contingency import contingency, group_purity


@pytest.fixture
def generator():
    return np.random.default_rng()  # fresh inputs in every run


def test_shuffled_purity_is_that_of_permuted_assignments(generator):
    size = 200
    groups = generator.choice(4, size, p=[0.6, 0.25, 0.1, 0.05])
    classes = generator.choice(3, size, p=[0.5, 0.3, 0.2])
    groups[:4] = range(4)
    null = shuffled_group_purity(contingency(groups, classes, (5, 3)), draws=3000)
    permuted = np.array(
        [group_purity(contingency(generator.permutation(groups), classes, (5, 3)))[:4] for _ in range(3000)]
    )
    spread = permuted.std(axis=0) / sqrt(3000)
    np.testing.assert_allclose(null.mean[:4], permuted.mean(axis=0), atol=float((8 * spread).max()))
    assert ((permuted <= null.high[:4]).mean(axis=0) > 0.96).all()  # purity comes in steps of a token
    assert ((permuted < null.high[:4]).mean(axis=0) < 0.99).all()
    assert np.isnan(null.mean[4])
    assert np.isnan(null.high[4])
    assert (null.high[:4] >= null.mean[:4]).all()


def test_shuffled_purity_repeats_with_its_seed():
    counts = np.array([[9, 4, 1], [3, 8, 6]])
    first, again = shuffled_group_purity(counts, seed=3), shuffled_group_purity(counts, seed=3)
    np.testing.assert_array_equal(first.mean, again.mean)
    assert not np.array_equal(first.mean, shuffled_group_purity(counts, seed=4).mean)


def test_a_groups_purity_has_the_interval_of_its_resampled_shares(generator):
    """200 sentences of 10 tokens; a group without tokens has neither value nor interval."""
    groups, classes = generator.integers(0, 3, 2000), generator.integers(0, 3, 2000)
    classes[groups == 0] = np.where(generator.random((groups == 0).sum()) < 0.8, 1, classes[groups == 0])
    resampler = Resampler(np.arange(2000) // 10, resamples=500, seed=1)
    by_unit = resampler.tally(groups * 5 + classes, 4 * 5)
    counts, drawn = by_unit.sum(axis=0).reshape(4, 5), resampler.draw(by_unit).reshape(-1, 4, 5)
    used = np.flatnonzero(counts.sum(axis=0))
    estimates = group_purity_estimates(
        counts, drawn[:, :, used], used, counts.argmax(axis=1), np.array([200, 200, 200, 0])
    )
    np.testing.assert_allclose([one.value for one in estimates], group_purity(counts))
    for estimate in estimates[:3]:
        low, high = estimate.interval(resampler.count)
        assert low < estimate.value < high
        assert high - low < 0.15
    assert estimates[3].interval(resampler.count) == (None, None)
