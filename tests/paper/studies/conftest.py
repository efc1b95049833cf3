"""A model of three layers, held-out sequences and centroids that a study must leave as they were."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.composition.attach import compose
from tests.helpers import build_centroids, build_model, random_ids


@pytest.fixture(scope="module")
def model():
    return build_model(num_hidden_layers=3)


@pytest.fixture(scope="module")
def sequences():
    return random_ids(40, batch=3, seed=5)


@pytest.fixture
def centroids(model):
    return build_centroids(model, num_groups=3, window=4, num_sinks=1)


def state(centroids):
    return {
        index: [router.config, *(value.clone() for value in router.state_dict().values())]
        for index, router in centroids.routers.items()
    }


@pytest.fixture
def centroids_unchanged(centroids, model):
    """No analysis may change the centroids it was given, or leave Focus on the model."""
    before = state(centroids)
    yield
    after = state(centroids)
    assert before.keys() == after.keys()
    for index, (config, *tensors) in before.items():
        assert after[index][0] == config
        assert all(torch.equal(x, y) for x, y in zip(tensors, after[index][1:], strict=True))
    compose(model, centroids).detach()
