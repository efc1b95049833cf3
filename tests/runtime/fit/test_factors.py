"""Factors of logits: learned for groups that stay as they are, under the mask that is used."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError
from focus_runtime.fit.centroids import SMALLEST_FACTOR, train_centroids
from focus_runtime.fit.objective import training_loss
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.models.loading import weights_sha256
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from tests.helpers import build_centroids, build_model
from tests.runtime.fit.tiny import TEXTS

FOCUS = {"num_groups": 4, "routing_dim": 8, "top_k": 1, "window": 2, "num_sinks": 1}
USUAL = {"steps": 12, "seq_len": 32, "batch": 2, "warmup": 1, "learning_rate": 0.05, "loss": "distil"}


def learn(model, tokenizer, initial, **changes):
    settings = TrainConfig(**USUAL | {"learn": "factors"} | changes)
    return train_centroids(model, tokenizer, TEXTS, FocusConfig(**FOCUS), settings, initial=initial)


@pytest.fixture
def initial(tokenizer):
    return build_centroids(build_model(), **FOCUS)


def divergence(model, centroids, ids):
    focus = compose(model, centroids)
    try:
        with torch.no_grad():
            return training_loss(focus, ids, loss="distil", distil_weight=1.0).divergence.item()
    finally:
        focus.detach()


@pytest.mark.slow
def test_they_bring_predictions_nearer_to_full_attentions_and_change_nothing_else(initial, tokenizer, tmp_path):
    model = build_model()
    before = weights_sha256(model)
    learned = learn(model, tokenizer, initial, steps=40)
    assert weights_sha256(model) == before
    assert learned.config.logit_factors
    assert not initial.config.logit_factors
    for index, router in learned.routers.items():
        start = initial.routers[index]
        assert start.logit_factors is None
        for name in ("projection", "centroids", "potential"):
            assert torch.equal(getattr(router, name), getattr(start, name))
        assert not torch.equal(router.logit_factors, torch.ones_like(router.logit_factors))
        assert not router.logit_factors.requires_grad
    ids = torch.cat([tokenizer(text, return_tensors="pt").input_ids[:, :32] for text in TEXTS])
    assert divergence(model, learned, ids) < divergence(model, initial, ids)
    save_centroids(learned, tmp_path / "learned.safetensors")
    again = load_centroids(tmp_path / "learned.safetensors")
    assert again.training["learn"] == "factors"
    further = learn(model, tokenizer, again, steps=2)  # goes on from the factors of the file
    gap = max((a.logit_factors - b.logit_factors).abs().max() for a, b in _both(again, further))
    assert 0 < gap <= 2 * 0.05 + 1e-6


def _both(one, other):
    return [(one.routers[index], other.routers[index]) for index in one.routers]


def test_the_file_says_how_its_groups_were_trained_and_that_its_budgets_are_older(initial, tokenizer):
    initial.training = {"steps": 7, "budget": {"points": []}, "balanced": {"sequences": 3}}
    learned = learn(build_model(), tokenizer, initial, steps=1)
    assert learned.training["groups_training"] == {"steps": 7}
    assert learned.training["budget"] == {"points": [], "before_factors": True}
    further = learn(build_model(), tokenizer, learned, steps=1)
    assert further.training["groups_training"] == {"steps": 7}
    assert further.training["budget"] == learned.training["budget"]
    assert learned.training["balanced"] == further.training["balanced"] == {"sequences": 3}


def test_gradients_are_those_of_the_mask_itself(initial, tokenizer):
    """Against differences of the loss."""
    model = build_model().double()
    for router in initial.routers.values():
        router.double()
        router.logit_factors = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    initial.config = initial.config.replace(logit_factors=True)
    ids = tokenizer(TEXTS[0], return_tensors="pt").input_ids[:, :32]
    focus = compose(model, initial)
    loss = training_loss(focus, ids, loss="lm", distil_weight=1.0)
    factors = initial.routers[0].logit_factors
    [gradient] = torch.autograd.grad(loss.objective, factors)
    step = 0.02  # losses are float32
    for head in range(4):
        sides = []
        for way in (1, -1):
            with torch.no_grad():
                factors[head] += way * step
                sides.append(training_loss(focus, ids, loss="lm", distil_weight=1.0).objective.item())
                factors[head] -= way * step
        assert gradient[head].item() == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-2, abs=1e-5)


def test_they_stay_above_zero(initial, tokenizer):
    learned = learn(build_model(), tokenizer, initial, steps=3, learning_rate=5.0)
    values = torch.cat([router.logit_factors for router in learned.routers.values()])
    assert values.min().item() == pytest.approx(SMALLEST_FACTOR)
    assert math.isfinite(values.max().item())


def test_they_need_trained_groups_and_the_mask(initial, tokenizer):
    with pytest.raises(ConfigError, match="trained groups"):
        learn(build_model(), tokenizer, None)
    with pytest.raises(ConfigError, match="under the mask in every step"):
        learn(build_model(), tokenizer, initial, hard=True)
    with pytest.raises(ConfigError, match="groups or factors"):
        learn(build_model(), tokenizer, initial, learn="everything")
