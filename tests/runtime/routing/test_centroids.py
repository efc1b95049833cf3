"""Centroids without training."""

from __future__ import annotations

import torch

from focus_runtime.config import FocusConfig
from focus_runtime.routing.centroids import random_centroids


def test_random_centroids_are_reproducible_and_cover_the_configured_layers(tiny_model):
    first, second, other = (random_centroids(tiny_model, FocusConfig(), seed=s) for s in (1, 1, 2))
    assert torch.equal(first.routers[1].projection, second.routers[1].projection)
    assert not torch.equal(first.routers[1].projection, other.routers[1].projection)
    assert not torch.equal(first.routers[0].projection, first.routers[1].projection)
    assert first.sha256 == second.sha256 != other.sha256
    assert list(random_centroids(tiny_model, FocusConfig(layers=(1,))).routers) == [1]
    assert not first.has_potentials
