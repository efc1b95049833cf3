"""Statistics, projection and tables, each against an independent definition."""

from __future__ import annotations

import numpy as np
import pytest

from focus_explorer.statistics import mean_interval
from focus_explorer.statistics.projection import project


def test_interval_covers_the_mean_about_95_times_in_100():
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        _, low, high = mean_interval(rng.normal(0.3, 1.0, 400), resamples=400, seed=trial)
        hits += low <= 0.3 <= high
    assert 170 <= hits <= 199


def test_interval_of_dependent_values_is_wider():
    rng = np.random.default_rng(2)
    steps = np.repeat(rng.normal(size=50), 32)
    shuffled = rng.permutation(steps)
    _, low, high = mean_interval(steps)
    _, low_s, high_s = mean_interval(shuffled)
    assert high - low > 2 * (high_s - low_s)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_interval_of_few_values(count):
    mean, low, high = mean_interval(np.full(count, 0.5))
    assert mean == low == high == 0.5


@pytest.mark.slow
def test_projection_separates_clear_groups_and_repeats_itself():
    rng = np.random.default_rng(0)
    centroids = np.eye(3, 8, dtype=np.float32)
    labels = np.arange(150) % 3
    routing = (centroids[labels] + rng.normal(0, 0.05, (150, 8))).astype(np.float32)
    made = project(routing, centroids)
    again = project(routing, centroids)
    np.testing.assert_array_equal(made.xy, again.xy)
    assert made.method == "UMAP"
    assert made.trustworthiness > 0.8
    distance = np.linalg.norm(made.xy[:150, None] - made.xy[None, 150:], axis=-1)
    assert (distance.argmin(axis=1) == labels).mean() > 0.95


@pytest.mark.parametrize("count", [2, 3, 31])
def test_short_texts_fall_back_to_pca(count):
    routing = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    made = project(routing, np.ones((2, 4), np.float32))
    assert made.method == "PCA"
    assert made.xy.shape == (count + 2, 2)
    assert np.isfinite(made.xy).all()
