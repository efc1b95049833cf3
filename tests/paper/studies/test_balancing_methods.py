"""Devices that keep hard groups balanced in training, each against what it says it does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from focus_runtime.composition.attach import SoftGate, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TrainingStopped
from focus_runtime.fit.centroids import train_centroids
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.measure.perplexity import score
from focus_runtime.models.loading import weights_sha256
from focus_runtime.text.sequences import encode_texts
from paper.studies.balancing_methods import (
    DEVICES,
    assign_balanced,
    measure_balancing,
    temperature_at,
    train_with,
)
from paper.studies.dominance import balance_loss
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids

pytestmark = pytest.mark.slow  # many short trainings or compositions; they run in make test

TEXTS = ["the quick brown fox jumps over the lazy dog. " * 12, "pack my box with five dozen liquor jugs, he said; " * 8]
FOCUS = FocusConfig(num_groups=4, routing_dim=8, top_k=1, window=4, num_sinks=1, sinkhorn_iterations=15)
PLAN: dict[str, Any] = {
    "steps": 3,
    "seq_len": 32,
    "batch": 2,
    "warmup": 0,
    "learning_rate": 1e-2,
    "calibration_sequences": 4,
}


def train(name, model=None, **changes):
    ids = encode_texts(build_tokenizer(), TEXTS, 1)
    return train_with(DEVICES[name], model or build_model(), ids, FOCUS, TrainConfig(**(PLAN | changes)))


@pytest.fixture
def passes(monkeypatch):
    """What was in force at every training pass: gate, configuration."""
    seen: list[tuple[Any, FocusConfig]] = []
    original = SoftGate.attend

    def recorded(gate, attend, module, layer, call):
        if layer.index == 0:
            seen.append((gate, layer.owner.config))
        return original(gate, attend, module, layer, call)

    monkeypatch.setattr(SoftGate, "attend", recorded)
    return seen


def test_balanced_assignment_has_equal_argmax_groups(fresh_seed):
    router = build_centroids(build_model(), num_groups=4, routing_dim=8).routers[0]
    hidden = torch.randn(2, 200, 64) + 2 * torch.randn(64)  # a common direction, which makes some groups large
    plain = torch.bincount(router.logits(hidden).argmax(dim=-1).flatten(), minlength=4)
    assignment = assign_balanced(router.requires_grad_(True), hidden)
    counts = torch.bincount(assignment.probabilities.argmax(dim=-1).flatten(), minlength=4)
    assert counts.max() <= min(plain.max().item(), 0.3 * 400)
    assert torch.equal(assignment.membership, 1 << assignment.probabilities.argmax(dim=-1))
    expected = torch.softmax(router.logits(hidden) + assignment.potential[:, None], dim=-1)
    torch.testing.assert_close(assignment.probabilities, expected)
    assert assignment.potential.shape == (2, 4)
    assert not assignment.potential.requires_grad
    assert assignment.probabilities.requires_grad


def test_balanced_potentials_are_the_ones_training_uses(monkeypatch):
    from paper.studies import balancing_methods as balance

    calls = []
    original = balance.assign_balanced
    monkeypatch.setattr(balance, "assign_balanced", lambda *args: calls.append(original(*args)) or calls[-1])
    centroids, last, _ = train("balanced-potentials", steps=1)
    assert len(calls) == 2  # layers
    torch.testing.assert_close(centroids.routers[1].potential, calls[1].potential[0].detach())
    assert last.dominance < 0.32
    assert all("assign" not in vars(router) for router in centroids.routers.values())


@pytest.mark.parametrize(("name", "iterations"), [("sinkhorn-10", 10), ("sinkhorn-20", 20), ("lower-rate", 15)])
def test_sinkhorns_iterations_are_those_named(name, iterations, passes):
    train(name, steps=1)
    assert [config.sinkhorn_iterations for _, config in passes] == [iterations]


def test_the_lower_rate_is_a_third():
    assert train("lower-rate")[1].learning_rate == pytest.approx(train("sinkhorn-20")[1].learning_rate / 3)


def test_straight_through_trains_on_the_hard_mask(passes):
    train("straight-through")
    assert [gate.hard for gate, _ in passes] == [True] * 3
    train("sinkhorn-10", steps=1)
    assert passes[-1][0].hard is False


def test_temperature_falls_geometrically_to_the_configured_one(passes):
    centroids, _, _ = train("annealed-temperature")
    assert [config.temperature for _, config in passes] == pytest.approx([0.4, 0.2, 0.1])
    assert centroids.config.temperature == 0.1
    assert temperature_at(0, 1, 0.4, 0.1) == pytest.approx(0.1)
    assert temperature_at(9, 5, 0.4, 0.1) == pytest.approx(0.1)


def test_the_balance_loss_is_added_and_moves_the_routers(monkeypatch):
    from paper.studies import balancing_methods as balance

    seen: list[torch.Tensor] = []
    monkeypatch.setattr(balance, "balance_loss", lambda g: seen.append(balance_loss(g)) or seen[-1])
    with_loss, last, _ = train("balance-loss", steps=1)
    without, plain, _ = train("lower-rate", steps=1)
    assert last.loss == pytest.approx(plain.loss + 0.1 * sum(seen).item() / 2, rel=1e-5)
    assert len(seen) == 2
    assert not torch.equal(with_loss.routers[0].projection, without.routers[0].projection)


def test_without_a_device_of_its_own_it_is_ordinary_training():
    centroids = train_centroids(
        build_model(), build_tokenizer(), TEXTS, FOCUS.replace(sinkhorn_iterations=10), TrainConfig(**PLAN)
    )
    same, _, _ = train("sinkhorn-10")
    for index, router in same.routers.items():
        assert torch.equal(router.projection, centroids.routers[index].projection)
        assert torch.equal(router.centroids, centroids.routers[index].centroids)


def test_a_row_tells_quality_before_and_after_calibration(fresh_seed):
    model, validation, seen = build_model(), random_ids(32, batch=2, seed=fresh_seed), []
    before = weights_sha256(model)
    rows = measure_balancing(
        model,
        build_tokenizer(),
        TEXTS,
        validation,
        FOCUS,
        TrainConfig(**PLAN),
        ["sinkhorn-10", "balanced-potentials"],
        top_ks=(1, 4, 9),
        on_row=seen.append,
    )
    assert rows == seen
    assert weights_sha256(model) == before
    assert model.config._attn_implementation == "eager"
    assert [row["device"] for row in rows] == ["sinkhorn-10", "balanced-potentials"]
    scores = [(entry["top_k"], entry["calibrated"]) for entry in rows[0]["scores"]]
    assert scores == [(1, False), (4, False), (1, True), (4, True)]
    full = score(model, validation).perplexity
    assert [entry["perplexity"] for entry in rows[0]["scores"][1::2]] == pytest.approx([full, full], rel=1e-4)
    focus = compose(model, train("sinkhorn-10")[0], top_k=1)
    expected = score(focus, validation)
    focus.detach()
    entry = rows[0]["scores"][0]
    assert entry["perplexity"] == pytest.approx(expected.perplexity, rel=1e-6)
    assert entry["dominance_max"] == pytest.approx(expected.dominance.max())
    assert entry["scored"] == 62


def test_layers_that_keep_their_own_attention_are_left_out():
    """They are not trained, so they have learned no potentials with which the rest could be scored."""
    model = build_model("Gemma2", sliding_window=8, num_hidden_layers=4)
    centroids, _, _ = train("sinkhorn-20", model)
    assert sorted(centroids.routers) == [1, 3]
    assert centroids.has_potentials
    rows = measure_balancing(
        model,
        build_tokenizer(),
        TEXTS,
        random_ids(40, batch=2),
        FOCUS,
        TrainConfig(**PLAN),
        ["sinkhorn-20"],
        top_ks=(1,),
    )
    assert [entry["calibrated"] for entry in rows[0]["scores"]] == [False, True]


def test_unknown_devices_and_stopping():
    arguments: Any = (build_model(), build_tokenizer(), TEXTS, random_ids(32), FOCUS, TrainConfig(**PLAN))
    with pytest.raises(ConfigError, match=r"device 'magic' is unknown; expected one of sinkhorn-10"):
        measure_balancing(*arguments, ["magic"])
    with pytest.raises(TrainingStopped):
        measure_balancing(*arguments, ["sinkhorn-10"], should_stop=lambda: True)
    assert "_focus_layer" not in vars(arguments[0].model.layers[0].self_attn)
