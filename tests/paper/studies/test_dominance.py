"""Every mitigation of group dominance against its own formula, and the collapse itself on a tiny model."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TextError, TrainingStopped
from focus_runtime.fit.centroids import centroid_loop, training_focus
from focus_runtime.fit.regimes import RegimePlan, run_regime
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.models.loading import weights_sha256
from focus_runtime.text.sequences import TokenStream, encode_texts, step_sequences
from paper.studies.dominance import (
    STRATEGIES,
    RoutingVectors,
    Strategy,
    balance_loss,
    clustered,
    entropy_loss,
    measure_dominance,
    moved_centroids,
)
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids

pytestmark = pytest.mark.slow  # many short trainings or compositions; they run in make test

TEXTS = ["the quick brown fox jumps over the lazy dog. " * 12, "pack my box with five dozen liquor jugs, he said; " * 8]
FOCUS = FocusConfig(num_groups=4, routing_dim=8, top_k=1, window=4, num_sinks=1)
PLAN: dict[str, Any] = {"steps": 3, "seq_len": 32, "batch": 2, "warmup": 0, "learning_rate": 1e-2}


def run(strategies, model=None, **changes):
    options = {
        name: changes.pop(name)
        for name in ("weights", "router_rate", "probe", "on_row", "should_stop")
        if name in changes
    }
    settings = TrainConfig(**(PLAN | changes))
    return measure_dominance(model or build_model(), build_tokenizer(), TEXTS, FOCUS, settings, strategies, **options)


def curve(rows, name, strategy=None):
    return [row[name] for row in rows if strategy in (None, row["strategy"])]


# --- the formulas


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


def test_clusters_of_equal_vectors_leave_no_nan():
    centres = clustered(torch.ones(8, 3), 4, torch.Generator().manual_seed(0))
    assert torch.isfinite(centres).all()


# --- what a strategy does in training


def one_step(strategy, monkeypatch=None, **changes):
    """Routers before and after one step of a strategy, with the batch it saw."""
    import paper.studies.dominance as module

    made: list[Any] = []
    original = module.random_centroids

    def recorded(*args, **kwargs):
        made.append(original(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(module, "random_centroids", recorded)
    rows = run([strategy], steps=1, **changes)
    return build_centroids(build_model(), num_groups=4, routing_dim=8, seed=0), made[0], rows


def test_ema_moves_centroids_by_its_formula_and_the_projection_by_gradients(monkeypatch):
    before, after, _ = one_step("ema", monkeypatch)
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


def test_reclustering_comes_every_n_steps_and_only_then(monkeypatch):
    import paper.studies.dominance as module

    calls = []
    original = module.clustered

    def recorded(vectors, groups, generator):
        calls.append((vectors.shape, original(vectors, groups, generator)))
        return calls[-1][1]

    monkeypatch.setattr(module, "clustered", recorded)
    often = Strategy(name="often", meaning="every second step", recluster_every=2)
    _, after, _ = one_step(often, monkeypatch)
    assert calls == []
    run([often], steps=5)
    assert [shape for shape, _ in calls] == [(64, 8)] * 4  # two layers, after steps 2 and 4
    monkeypatch.setattr(module, "clustered", recorded)
    always = Strategy(name="always", meaning="every step", recluster_every=1)
    calls.clear()
    _, after, _ = one_step(always, monkeypatch)
    assert torch.equal(after.routers[1].centroids, calls[-1][1])


def test_stop_gradient_cuts_what_routers_send_back_and_nothing_else():
    model, ids = build_model(), random_ids(32)

    def gradients(stop):
        centroids = build_centroids(model, num_groups=4, routing_dim=8, normalisation="softmax")
        with training_focus(model, centroids, weights=True) as focus, RoutingVectors(centroids, stop) as vectors:
            loop = centroid_loop(
                focus, centroids, TokenStream(ids[0]), TrainConfig(**PLAN), weights=list(model.parameters())
            )
            with loop.around_step(0):
                sum(a.probabilities[..., 0].sum() for a in _after(loop, focus, ids)).backward()
            received = model.get_input_embeddings().weight.grad, centroids.routers[0].projection.grad
            assert vectors.latest[0].shape == (32, 8)
        return received

    embeddings, projection = gradients(stop=False)
    cut, kept = gradients(stop=True)
    assert embeddings.abs().sum() > 0
    assert cut is None or cut.abs().sum() == 0
    torch.testing.assert_close(kept, projection)


def _after(loop, focus, ids):
    loop.loss(ids)
    return [focus.assignments()[0]]


@pytest.mark.parametrize("name", ["entropy-balance", "balance-x5"])
def test_the_auxiliary_loss_has_the_stated_weights(name, monkeypatch):
    import paper.studies.dominance as module

    seen: list[torch.Tensor] = []
    original = module.balance_loss

    def recorded(probabilities):
        seen.append(probabilities.detach())
        return original(probabilities)

    monkeypatch.setattr(module, "balance_loss", recorded)
    (row,) = run([name], steps=1)
    plain = run(["softmax"], steps=1)[0]
    weight = {"entropy-balance": 0.01, "balance-x5": 0.05}[name]
    expected = sum(0.01 * entropy_loss(g) + weight * original(g) for g in seen[:2]).item() / 2
    assert row["auxiliary"] == pytest.approx(expected, rel=1e-4)
    assert row["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert plain["auxiliary"] == 0


def test_every_strategy_says_what_it_is():
    assert list(STRATEGIES) == [
        "softmax",
        "entropy-balance",
        "stop-gradient",
        "ema",
        "recluster",
        "balance-x5",
        "sinkhorn",
    ]
    assert {s.name: s.normalisation for s in STRATEGIES.values() if s.normalisation != "softmax"} == {
        "sinkhorn": "sinkhorn"
    }
    times_five, base = STRATEGIES["balance-x5"], STRATEGIES["entropy-balance"]
    assert times_five.balance == 5 * base.balance
    assert times_five.entropy == base.entropy


# --- the study


def test_all_strategies_see_the_same_data_and_leave_the_model_alone(batches):
    model, seen = build_model(), []
    before = weights_sha256(model)
    rows = run(list(STRATEGIES), model, steps=2, weights=True, router_rate=1e-2, learning_rate=1e-3, on_row=seen.append)
    assert weights_sha256(model) == before
    assert seen == rows
    assert [row["strategy"] for row in rows] == [name for name in STRATEGIES for _ in range(2)]
    for index in range(2, len(batches)):
        assert torch.equal(batches[index], batches[index % 2])
    first = [row["loss"] for row in rows if row["step"] == 1 and row["strategy"] != "sinkhorn"]
    assert first == pytest.approx([first[0]] * len(first), rel=1e-5)  # the same routers at the start
    assert all(0.25 <= row["dominance"] <= row["dominance_max"] <= 1 and 0 <= row["dead_groups"] <= 3 for row in rows)


def test_stability_is_the_share_of_a_probes_tokens_that_keep_their_group():
    import paper.studies.dominance as module

    probe, groups = random_ids(40), []
    read = module.FocusModel.assignments

    def watched(focus):
        found = read(focus)
        if next(iter(found.values())).probabilities.shape[1] == 40:  # of the probe, not of a training sequence
            groups.append({index: one.probabilities.argmax(-1) for index, one in found.items()})
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.FocusModel, "assignments", watched)
        rows = run(["sinkhorn"], steps=10, probe=probe, learning_rate=1e-1)
    assert all(math.isnan(row["stability"]) for row in rows[:-1])
    before, after = groups[-2:]
    kept = [(before[index] == after[index]).float().mean().item() for index in before]
    assert rows[-1]["stability"] == pytest.approx(np.mean(kept))
    plain = run(["sinkhorn"], steps=10, learning_rate=1e-1)
    assert curve(plain, "loss") == pytest.approx(curve(rows, "loss"))  # the probe changes no training
    assert math.isnan(plain[-1]["stability"])


def test_training_the_weights_changes_the_curve():
    frozen, trained = run(["softmax"]), run(["softmax"], weights=True, router_rate=1e-2, learning_rate=1e-2)
    assert frozen[0]["loss"] == pytest.approx(trained[0]["loss"], rel=1e-6)  # with another form of the same sum
    assert trained[-1]["loss"] < frozen[-1]["loss"]


def test_gradient_checkpointing_changes_no_strategy():
    for name in ("entropy-balance", "ema"):
        plain = run([name], steps=2, weights=True, learning_rate=1e-3)
        again = run([name], steps=2, weights=True, learning_rate=1e-3, gradient_checkpointing=True)
        assert curve(again, "loss") == pytest.approx(curve(plain, "loss"), rel=1e-5)
        assert curve(again, "auxiliary") == pytest.approx(curve(plain, "auxiliary"), rel=1e-4)


def test_bad_input_is_said():
    with pytest.raises(ConfigError, match=r"strategy 'hope' is unknown; expected one of softmax"):
        run(["hope"])
    with pytest.raises(TextError, match="at least 33"):
        measure_dominance(build_model(), build_tokenizer(), ["short"], FOCUS, TrainConfig(**PLAN), ["softmax"])
    seen: list[Any] = []
    with pytest.raises(TrainingStopped):
        run(["softmax"], on_row=seen.append, should_stop=lambda: True)
    assert len(seen) == 1


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
    rows = measure_dominance(model, build_tokenizer(), texts, config, settings, ["softmax", "sinkhorn"])
    softmax, sinkhorn = ([row for row in rows if row["strategy"] == name][-10:] for name in ("softmax", "sinkhorn"))
    assert min(curve(softmax, "dominance")) > 0.9
    assert min(curve(softmax, "retained_pairs")) > 0.9
    assert max(curve(softmax, "dead_groups")) == 3
    assert max(curve(sinkhorn, "dominance")) < 0.6
    assert max(curve(sinkhorn, "retained_pairs")) < 0.6
    assert max(curve(sinkhorn, "dead_groups")) == 0
