"""Maps of tokens and centroids by UMAP, and by PCA for short texts."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from focus_explorer.usecases.maps import project


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


def test_what_numba_compiles_is_kept_for_the_next_process_where_a_folder_can_be_written(monkeypatch):
    from numba.core.caching import NullCache

    routing = np.random.default_rng(5).normal(size=(40, 4)).astype(np.float32)
    before = project(routing, routing[:2]).xy
    from umap import umap_  # after ours, which imports it in a way of its own

    assert not isinstance(umap_.smooth_knn_dist._cache, NullCache)
    dispatcher = type(umap_.smooth_knn_dist)
    monkeypatch.setattr(umap_.smooth_knn_dist, "_cache", NullCache())
    refused = []

    def refuse(function):
        refused.append(function)
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(dispatcher, "enable_caching", refuse)
    assert np.array_equal(project(routing, routing[:2]).xy, before)
    assert umap_.smooth_knn_dist in refused


def test_what_no_short_text_calls_is_not_compiled():
    import numba

    own = numba.njit
    routing = np.random.default_rng(6).normal(size=(40, 4)).astype(np.float32)
    project(routing, routing[:2])
    from pynndescent import distances, utils
    from umap import layouts

    assert numba.njit is own
    assert utils.tau_rand.signatures == distances.squared_euclidean.signatures == []
    assert layouts.rdist.signatures != []


THREADS = """
import numpy as np, torch
from focus_explorer.usecases.maps import project
routing = np.random.default_rng(7).normal(size=(40, 4)).astype(np.float32)
project(routing, routing[:2])
print(torch.get_num_threads())
"""


@pytest.mark.slow
def test_a_map_leaves_torch_its_number_of_threads():
    """In a new process: numba, when first used, sets OpenMP's, and what ran afterwards took every core."""
    one = os.environ | {"OMP_NUM_THREADS": "1"}
    made = subprocess.run([sys.executable, "-c", THREADS], env=one, capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["1"]
