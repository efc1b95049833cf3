"""Centroid training and calibration on a tiny model."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TextError, TrainingError
from focus_runtime.fit.centroids import retained_pairs, train_centroids
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.fit.validation import validate
from focus_runtime.mask.rule import PairRule
from focus_runtime.models.loading import weights_sha256
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.text.sequences import encode_texts
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.fit.tiny import FOCUS, TEXTS, state


def train(model, tokenizer, *, focus=None, **changes):
    values = {"steps": 4, "seq_len": 32, "batch": 2, "warmup": 1, "learning_rate": 1e-2, "calibration_sequences": 4}
    steps: list = []
    centroids = train_centroids(
        model,
        tokenizer,
        TEXTS,
        FocusConfig(**{**FOCUS, **(focus or {})}),
        TrainConfig(**(values | changes)),
        model_id="tiny",
        on_step=steps.append,
    )
    return centroids, steps


def test_files_kept_on_the_way_are_whole_and_change_nothing(tokenizer, tmp_path):
    values = {"steps": 5, "seq_len": 32, "batch": 2, "warmup": 1, "learning_rate": 1e-2, "calibration_sequences": 4}
    arguments = (tokenizer, TEXTS, FocusConfig(**FOCUS), TrainConfig(**values))
    alone = state(train_centroids(build_model(), *arguments))
    snapshots = {}

    def keep(step, centroids):
        save_centroids(centroids, tmp_path / f"{step}.safetensors")
        snapshots[step] = load_centroids(tmp_path / f"{step}.safetensors")

    watched = state(train_centroids(build_model(), *arguments, on_snapshot=keep, snapshot_every=2))
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    assert list(snapshots) == [2, 4]
    assert [snapshot.training["steps"] for snapshot in snapshots.values()] == [2, 4]
    assert all(snapshot.has_potentials for snapshot in snapshots.values())
    assert not torch.equal(snapshots[2].routers[0].centroids, snapshots[4].routers[0].centroids)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "focus"), [({}, {}), ({"hard": True}, {"normalisation": "softmax"}), ({}, {"gate": "paper"})]
)
def test_training_changes_routers_only(changes, focus, tiny_model, tokenizer, ids, tmp_path):
    before, logits = weights_sha256(tiny_model), tiny_model(input_ids=ids).logits.detach()
    centroids, steps = train(tiny_model, tokenizer, focus=focus, **changes)
    assert weights_sha256(tiny_model) == before
    assert torch.equal(tiny_model(input_ids=ids).logits, logits)
    assert [s.step for s in steps] == [1, 2, 3, 4]
    notes = centroids.training
    assert (centroids.base_model, notes["seed"], notes["final_loss"]) == ("tiny", 0, steps[-1].loss)
    assert (notes["tokens_seen"], notes["training_tokens"]) == (4 * 2 * 32, sum(len(text) for text in TEXTS))
    assert all(math.isfinite(s.loss) and 0.25 <= s.dominance <= 1 and s.tokens_per_second > 0 for s in steps)
    start = build_centroids(tiny_model, **FOCUS)
    for index, router in centroids.routers.items():
        assert not torch.equal(router.projection, start.routers[index].projection)
        assert not torch.equal(router.centroids, start.routers[index].centroids)
        assert not router.projection.requires_grad
    assert centroids.has_potentials
    save_centroids(centroids, tmp_path / "c.safetensors")
    loaded = load_centroids(tmp_path / "c.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(state(loaded), state(centroids), strict=True))
    compose(tiny_model, loaded).detach()


@pytest.mark.slow
def test_training_goes_on_from_other_centroids(tokenizer):
    config = FocusConfig(**FOCUS)
    first, _ = train(build_model(), tokenizer)
    first.sha256, before = "f" * 64, [tensor.clone() for tensor in state(first)]
    values = {"steps": 3, "seq_len": 32, "batch": 2, "warmup": 0, "calibration_sequences": 4}
    steps: list = []
    settings = TrainConfig(**(values | {"learning_rate": 1e-12}))
    same = train_centroids(build_model(), tokenizer, TEXTS, config, settings, initial=first, on_step=steps.append)
    for index, router in same.routers.items():
        torch.testing.assert_close(router.projection, first.routers[index].projection)
        torch.testing.assert_close(router.centroids, first.routers[index].centroids)
    assert same.training["initial"] == {"name": "trained", "sha256": "f" * 64}
    random, _ = train(build_model(), tokenizer, steps=1)
    assert steps[0].loss < random.training["final_loss"]  # where the first training left off
    moved = train_centroids(
        build_model(), tokenizer, TEXTS, config, TrainConfig(**(values | {"learning_rate": 1e-2})), initial=first
    )
    assert not torch.allclose(moved.routers[0].centroids, first.routers[0].centroids, atol=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(before, state(first), strict=True))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_groups": 5}, "4 groups and routing size 8"),
        ({"routing_dim": 4}, "4 groups and routing size 8"),
        ({"layers": (1,)}, "routers in layers"),
    ],
)
def test_centroids_of_another_shape_are_no_start(tokenizer, changes, problem):
    first = build_centroids(build_model(), **FOCUS)
    settings = TrainConfig(steps=1, seq_len=32)
    with pytest.raises(ConfigError, match=problem):
        train_centroids(build_model(), tokenizer, TEXTS, FocusConfig(**FOCUS | changes), settings, initial=first)


def test_a_model_in_training_mode_gives_the_same_centroids(tokenizer):
    """Dropout is off in the training and in the estimate of potentials, and on again after them."""
    model = build_model("GPT2", attn_pdrop=0.5, resid_pdrop=0.5)
    same = state(train(model, tokenizer)[0])
    model.train()
    made = state(train(model, tokenizer)[0])
    assert all(torch.equal(one, other) for one, other in zip(made, same, strict=True))
    assert all(module.training for module in model.modules())


def test_the_seed_decides_the_order_of_the_data_and_the_centroids(tokenizer, batches):
    made = [state(train(build_model(), tokenizer, seed=seed, steps=1)[0]) for seed in (5, 5, 6)]
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])
    assert all(torch.equal(a, b) for a, b in zip(made[0], made[1], strict=True))
    assert not torch.equal(made[0][0], made[2][0])


def test_too_little_text_is_refused(tiny_model, tokenizer):
    with pytest.raises(TextError, match=r"has 5 tokens.*at least 33"):
        train_centroids(tiny_model, tokenizer, ["short"], FocusConfig(**FOCUS), TrainConfig(steps=1, seq_len=32))
    with pytest.raises(TextError, match="has 0 tokens"):
        encode_texts(tokenizer, [], 1)


def test_validate_reports_quality_with_its_conditions(tiny_model):
    report = validate(tiny_model, build_centroids(tiny_model), random_ids(30, batch=2), top_ks=(1, 4))
    assert (report["scored_tokens"], report["sequence_length"]) == (58, 30)
    assert report["k=4"]["perplexity"] == pytest.approx(report["full"], rel=1e-5)
    assert report["k=1"]["retained_pairs"] < report["k=4"]["retained_pairs"] == 1.0
    assert tiny_model.config._attn_implementation == "eager"


@pytest.mark.parametrize("sliding", [None, 40])
def test_retained_pairs_of_a_step_are_those_of_the_mask(fresh_seed, sliding):
    from focus_runtime.mask.counts import count_pairs

    rule = PairRule(10, 2, sliding)
    membership = 1 << torch.randint(0, 4, (300,))
    exact = count_pairs(membership.numpy(), rule).retained_pairs
    assert retained_pairs(membership, rule) == pytest.approx(exact, abs=1e-12)
    longer = 1 << torch.randint(0, 4, (3000,))
    assert retained_pairs(longer, rule) == pytest.approx(count_pairs(longer.numpy(), rule).retained_pairs, abs=5e-3)


def test_changed_weights_are_noticed(tiny_model, tokenizer):
    def change(_):
        with torch.no_grad():
            tiny_model.lm_head.weight[0, 0] += 1.0

    with pytest.raises(TrainingError, match="changed the base model's weights"):
        train_centroids(
            tiny_model, tokenizer, TEXTS, FocusConfig(**FOCUS), TrainConfig(steps=1, seq_len=32), on_step=change
        )
