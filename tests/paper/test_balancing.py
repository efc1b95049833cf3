"""Every strategy against its own formula, and the collapse itself on a tiny model."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest
import torch

from focus_runtime.composition.observe import observe_routing
from focus_runtime.config import FocusConfig
from focus_runtime.fit.centroids import centroid_loop, train_centroids, training_focus
from focus_runtime.fit.regimes import RegimePlan, run_regime
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.text.sequences import TokenStream, encode_texts, step_sequences
from paper.lab.balancing import (
    DEVICES,
    MITIGATIONS,
    StrategyTraining,
    assign_balanced,
    balance_loss,
    clustered,
    entropy_loss,
    moved_centroids,
)
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids

pytestmark = pytest.mark.slow  # many short trainings; they run in make test

TEXTS = ["the quick brown fox jumps over the lazy dog. " * 12, "pack my box with five dozen liquor jugs, he said; " * 8]
FOCUS = FocusConfig(num_groups=4, routing_dim=8, top_k=1, window=4, num_sinks=1, sinkhorn_iterations=15)
PLAN: dict[str, Any] = {"steps": 3, "seq_len": 32, "batch": 2, "warmup": 0, "learning_rate": 1e-2}
STRATEGIES = MITIGATIONS | DEVICES


def train(name, model=None, texts=TEXTS, config=FOCUS, **changes):
    """Centroids and rows of one strategy's training."""
    options = {key: changes.pop(key) for key in ("router_rate", "probe") if key in changes}
    strategy = STRATEGIES[name] if isinstance(name, str) else name
    settings = TrainConfig(**(PLAN | changes))
    training = StrategyTraining(model or build_model(), strategy, config, settings, **options)
    return training.run(encode_texts(build_tokenizer(), texts, 1)), training.rows


def curve(rows, name):
    return [row[name] for row in rows]


def test_entropy_loss_is_the_mean_entropy_over_its_largest(fresh_seed):
    g = torch.softmax(torch.randn(2, 9, 5) * 3, dim=-1)
    rows = g.double().flatten(0, 1).tolist()
    expected = sum(-sum(p * math.log(p) for p in row) for row in rows) / len(rows) / math.log(5)
    assert entropy_loss(g).item() == pytest.approx(expected, rel=1e-5)
    assert entropy_loss(torch.full((1, 3, 4), 0.25)).item() == pytest.approx(1)
    assert entropy_loss(torch.eye(4)[None]).item() == pytest.approx(0, abs=1e-6)


def test_balance_loss_is_zero_at_equal_shares_and_k_minus_one_at_collapse(fresh_seed):
    g = torch.softmax(torch.randn(2, 9, 5) * 3, dim=-1)
    shares = g.double().flatten(0, 1).mean(dim=0).tolist()
    assert balance_loss(g).item() == pytest.approx(5 * sum(s * s for s in shares) - 1, rel=1e-4, abs=1e-6)
    assert balance_loss(torch.eye(4)[None]).item() == pytest.approx(0, abs=1e-6)
    assert balance_loss(torch.eye(4)[:1].expand(1, 7, 4)).item() == pytest.approx(3)


def test_centroids_follow_the_mean_of_their_vectors():
    centroids = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    vectors = torch.tensor([[3.0, 0.0], [1.0, 2.0], [0.0, -1.0]])
    moved = moved_centroids(centroids, vectors, torch.tensor([0, 0, 1]), decay=0.75)
    # group 0: 0.75 (1, 0) + 0.25 (2, 1); group 1: 0.75 (0, 1) + 0.25 (0, -1); group 2 has no vector
    assert torch.equal(moved, torch.tensor([[1.25, 0.25], [0.0, 0.5], [5.0, 5.0]]))


def test_clusters_are_found_and_are_what_the_scores_choose(fresh_seed):
    centres = torch.linalg.qr(torch.randn(6, 6)).Q[:4]
    owner = torch.arange(200) % 4
    vectors = (centres[owner] + 0.05 * torch.randn(200, 6)) * (0.5 + torch.rand(200, 1))
    fitted = clustered(vectors, 4, torch.Generator().manual_seed(fresh_seed))
    assert torch.allclose(fitted.norm(dim=-1), torch.ones(4))
    nearest = (vectors @ fitted.T).argmax(dim=-1)
    assert torch.bincount(nearest, minlength=4).min() > 0
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    means = torch.stack([unit[nearest == group].mean(dim=0) for group in range(4)])
    torch.testing.assert_close(fitted, torch.nn.functional.normalize(means, dim=-1))  # a fixed point of k-means


def test_ema_moves_centroids_by_its_formula_and_the_projection_by_gradients():
    after, _ = train("ema", steps=1)
    before = build_centroids(build_model(), num_groups=4, routing_dim=8, seed=0)
    batch = step_sequences(encode_texts(build_tokenizer(), TEXTS, 1), 0, 2, 32, 0)
    hidden: list[torch.Tensor] = []
    model = build_model()
    layer = model.model.layers[0].self_attn
    layer.register_forward_pre_hook(lambda _, args, kwargs: hidden.append(kwargs["hidden_states"]), with_kwargs=True)
    with torch.no_grad():
        model(input_ids=batch)
        vectors = (hidden[0] @ before.routers[0].projection).flatten(0, 1)
        chosen = (vectors @ before.routers[0].centroids.T).argmax(dim=-1)
        expected = before.routers[0].centroids.clone()
        for group in chosen.unique().tolist():
            expected[group] = 0.99 * expected[group] + 0.01 * vectors[chosen == group].mean(dim=0)
    torch.testing.assert_close(after.routers[0].centroids.data, expected)
    assert not torch.equal(after.routers[0].centroids, before.routers[0].centroids)
    assert not torch.equal(after.routers[0].projection, before.routers[0].projection)


def test_stop_gradient_cuts_what_routers_send_back_and_nothing_else():
    model, ids = build_model(), random_ids(32)

    def gradients(stop):
        centroids = build_centroids(model, num_groups=4, routing_dim=8, normalisation="softmax")
        watched = observe_routing(centroids, stop_gradient=stop)
        with training_focus(model, centroids, weights=True) as focus, watched:
            loop = centroid_loop(
                focus, centroids, TokenStream(ids[0]), TrainConfig(**PLAN), weights=list(model.parameters())
            )
            with loop.around_step(0):
                loop.loss(ids)
                focus.assignments()[0].probabilities[..., 0].sum().backward()
            return model.get_input_embeddings().weight.grad, centroids.routers[0].projection.grad

    embeddings, projection = gradients(stop=False)
    cut, kept = gradients(stop=True)
    assert embeddings.abs().sum() > 0
    assert cut is None or cut.abs().sum() == 0
    torch.testing.assert_close(kept, projection)


def topics(documents=40, length=512, letters=6, seed=0):
    """Each document draws its letters from six of the alphabet, so that every earlier token helps to guess the next."""
    source = random.Random(seed)
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    return ["".join("".join(source.choices(source.sample(alphabet, letters), k=length)) for _ in range(documents))]


def test_softmax_collapses_and_sinkhorn_holds():
    """A model that has learnt to look far pays for every pair that groups hide: softmax opens the mask by putting all
    tokens into one group, which Sinkhorn does not allow. How far it goes depends on the seed: of three tried, two ended
    with one group of four and one with two, while Sinkhorn kept all four in each."""
    texts = topics()
    weights = TrainConfig(steps=80, seq_len=64, batch=8, warmup=0, learning_rate=5e-3)
    plan = RegimePlan(regime="from_scratch", weights=weights)
    model = run_regime(plan, build_model(num_hidden_layers=1), build_tokenizer(), texts, FOCUS, twin=True).model
    config = FocusConfig(num_groups=4, routing_dim=8, top_k=1, window=0, num_sinks=0, temperature=1.0)
    settings = TrainConfig(steps=30, seq_len=64, batch=4, warmup=0, learning_rate=0.1)
    softmax, sinkhorn = (
        train(name, model, texts, config, **dataclasses.asdict(settings))[1][-10:] for name in ("softmax", "sinkhorn")
    )
    assert min(curve(softmax, "dominance")) > 0.9
    assert min(curve(softmax, "retained_pairs")) > 0.9
    assert max(curve(softmax, "dead_groups")) == 3
    assert max(curve(sinkhorn, "dominance")) < 0.6
    assert max(curve(sinkhorn, "retained_pairs")) < 0.6
    assert max(curve(sinkhorn, "dead_groups")) == 0


# --- devices


def test_balanced_assignment_has_equal_argmax_groups(fresh_seed):
    router = build_centroids(build_model(), num_groups=4, routing_dim=8).routers[0]
    hidden = torch.randn(2, 200, 64) + 2 * torch.randn(64)  # a common direction, which makes some groups large
    plain = torch.bincount(router.logits(hidden).argmax(dim=-1).flatten(), minlength=4)
    assignment = assign_balanced(0, router.requires_grad_(True), hidden, None)
    counts = torch.bincount(assignment.probabilities.argmax(dim=-1).flatten(), minlength=4)
    assert counts.max() <= min(plain.max().item(), 0.3 * 400)
    assert torch.equal(assignment.membership, 1 << assignment.probabilities.argmax(dim=-1))
    expected = torch.softmax(router.logits(hidden) + assignment.potential[:, None], dim=-1)
    torch.testing.assert_close(assignment.probabilities, expected)
    assert not assignment.potential.requires_grad
    assert assignment.probabilities.requires_grad
    assert train("balanced-potentials", steps=1)[1][0]["dominance"] < 0.32, "and training uses it"


def test_without_a_device_of_its_own_it_is_ordinary_training():
    config = FOCUS.replace(sinkhorn_iterations=10)
    expected = train_centroids(build_model(), build_tokenizer(), TEXTS, config, TrainConfig(**PLAN))
    same, _ = train("sinkhorn-10")
    for index, router in same.routers.items():
        assert torch.equal(router.projection, expected.routers[index].projection)
        assert torch.equal(router.centroids, expected.routers[index].centroids)
