"""Centroid training and calibration on a tiny model."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TextError, TrainingStopped
from focus_runtime.measure.loss import final_hidden
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.text.sequences import encode_texts, even_sequences, random_sequences, step_sequences
from focus_runtime.training.calibrate import calibrate_potentials, hard_potential
from focus_runtime.training.centroids import train_centroids, validate
from focus_runtime.training.loop import TrainConfig, rate_at
from tests.helpers import build_centroids, build_model, random_ids

TEXTS = ["the quick brown fox jumps over the lazy dog. " * 12, "pack my box with five dozen liquor jugs, he said; " * 8]
FOCUS: dict[str, Any] = {"num_groups": 4, "routing_dim": 8, "top_k": 1, "window": 4, "num_sinks": 1}


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


def state(centroids):
    return [v.clone() for _, r in sorted(centroids.routers.items()) for v in r.state_dict().values()]


def weights_hash(model):
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode() + parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def test_files_kept_on_the_way_are_whole_and_change_nothing(tokenizer, tmp_path):
    values = {"steps": 5, "seq_len": 32, "batch": 2, "warmup": 1, "learning_rate": 1e-2, "calibration_sequences": 4}
    arguments = (tokenizer, TEXTS, FocusConfig(**FOCUS), TrainConfig(**values))
    alone = state(train_centroids(build_model(), *arguments))
    kept = {}

    def keep(step, centroids):
        save_centroids(centroids, tmp_path / f"{step}.safetensors")
        kept[step] = load_centroids(tmp_path / f"{step}.safetensors")

    watched = state(train_centroids(build_model(), *arguments, on_snapshot=keep, snapshot_every=2))
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    assert list(kept) == [2, 4]
    assert [found.training["steps"] for found in kept.values()] == [2, 4]
    assert all(found.has_potentials for found in kept.values())
    assert not torch.equal(kept[2].routers[0].centroids, kept[4].routers[0].centroids)


@pytest.mark.parametrize("changes", [{}, {"hard": True}])
@pytest.mark.parametrize("focus", [{}, {"gate": "paper"}, {"normalisation": "softmax"}])
def test_training_changes_routers_only(changes, focus, tiny_model, tokenizer, ids, tmp_path):
    before, logits = weights_hash(tiny_model), tiny_model(input_ids=ids).logits.detach()
    centroids, steps = train(tiny_model, tokenizer, focus=focus, **changes)
    assert weights_hash(tiny_model) == before
    assert torch.equal(tiny_model(input_ids=ids).logits, logits)
    assert [s.step for s in steps] == [1, 2, 3, 4]
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


def test_same_seed_same_centroids(tokenizer):
    runs = [state(train(build_model(), tokenizer, seed=seed)[0]) for seed in (5, 5, 6)]
    assert all(torch.equal(a, b) for a, b in zip(runs[0], runs[1], strict=True))
    assert not torch.equal(runs[0][0], runs[2][0])


def test_the_seed_decides_the_order_of_the_data(tiny_model, tokenizer, monkeypatch):
    batches: list[torch.Tensor] = []

    def recorded(*args):
        batches.append(step_sequences(*args))
        return batches[-1]

    monkeypatch.setattr("focus_runtime.training.loop.step_sequences", recorded)
    for seed in (5, 5, 6):
        train(tiny_model, tokenizer, seed=seed, steps=1)
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])


def test_what_is_recorded(tiny_model, tokenizer):
    centroids, steps = train(tiny_model, tokenizer)
    notes = centroids.training
    assert centroids.base_model == "tiny"
    assert centroids.base_fingerprint
    assert notes["tokens_seen"] == 4 * 2 * 32
    assert notes["training_tokens"] == sum(len(t) for t in TEXTS)
    assert notes["final_loss"] == steps[-1].loss
    assert notes["seed"] == 0


def test_training_lowers_the_loss(tiny_model, tokenizer):
    _, steps = train(tiny_model, tokenizer, steps=40, seq_len=64)
    first, last = (sum(s.loss for s in part) / 10 for part in (steps[:10], steps[-10:]))
    assert last < first


def test_a_failing_callback_leaves_the_model_clean(tiny_model, tokenizer, ids):
    logits = tiny_model(input_ids=ids).logits.detach()

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(TrainingStopped, match="after step 1"):
        train_centroids(
            tiny_model, tokenizer, TEXTS, FocusConfig(**FOCUS), TrainConfig(steps=2, seq_len=32), on_step=stop
        )
    assert torch.equal(tiny_model(input_ids=ids).logits, logits)
    assert tiny_model.config._attn_implementation == "eager"


def test_too_little_text_is_refused(tiny_model, tokenizer):
    with pytest.raises(TextError, match=r"has 5 tokens.*at least 33"):
        train_centroids(tiny_model, tokenizer, ["short"], FocusConfig(**FOCUS), TrainConfig(steps=1, seq_len=32))
    with pytest.raises(TextError, match="has 0 tokens"):
        encode_texts(tokenizer, [], 1)


def test_texts_are_joined_in_order(tokenizer):
    assert tokenizer.decode(encode_texts(tokenizer, ["ab", "cd"], 1)) == "abcd"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("seq_len", 15),
        ("batch", 0),
        ("warmup", -1),
        ("calibration_sequences", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("learning_rate", 10.0),
    ],
)
def test_bad_training_settings_are_named(name, value):
    with pytest.raises(ConfigError, match=name):
        TrainConfig(**{name: value})


def test_learning_rate_warms_up_and_falls_to_a_tenth():
    settings_ = TrainConfig(steps=100, warmup=10, learning_rate=1.0)
    rates = [rate_at(s, settings_) for s in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
    assert rate_at(0, TrainConfig(warmup=0)) == pytest.approx(3e-3)


def test_a_step_sees_the_same_data_however_it_was_reached():
    ids = torch.arange(400)
    rows = [step_sequences(ids, step, 3, 16, 5) for step in range(4)]
    assert torch.equal(rows[2], step_sequences(ids, 2, 3, 16, 5))
    assert not torch.equal(rows[2], rows[3])
    assert not torch.equal(rows[2], step_sequences(ids, 2, 3, 16, 6))


@settings(max_examples=100, deadline=None)
@given(st.integers(16, 3000), st.integers(1, 40), st.integers(16, 200))
def test_even_sequences_are_slices_that_never_overlap(total, count, length):
    if total < length:
        return
    rows = even_sequences(torch.arange(total), count, length)
    assert rows.shape == (min(count, total // length), length)
    assert torch.equal(rows, rows[:, :1] + torch.arange(length))
    assert (rows[1:, 0] > rows[:-1, -1]).all()
    assert rows[0, 0] == 0
    assert rows[-1, -1] < total


def test_random_sequences_reach_both_ends():
    starts = random_sequences(torch.arange(20), 500, 16, torch.Generator().manual_seed(0))
    assert torch.equal(starts, starts[:, :1] + torch.arange(16))
    assert set(starts[:, 0].tolist()) == {0, 1, 2, 3, 4}


def test_validate_reports_quality_beside_its_conditions(tiny_model):
    report = validate(tiny_model, build_centroids(tiny_model), random_ids(30, batch=2), top_ks=(1, 4))
    assert (report["scored_tokens"], report["sequence_length"]) == (58, 30)
    assert report["k=4"]["perplexity"] == pytest.approx(report["full"], rel=1e-5)
    assert report["k=1"]["retained_pairs"] < report["k=4"]["retained_pairs"] == 1.0
    assert tiny_model.config._attn_implementation == "eager"


# --- calibration


def shares(model, centroids, sequences):
    """Share of the tokens whose first group is the largest, by layer, under causal assignment."""
    focus = compose(model, centroids, top_k=1, assignment="causal")
    counts: dict[int, list[torch.Tensor]] = {}
    with torch.no_grad():
        for row in sequences.split(1):
            final_hidden(model, row)
            for index, assignment in focus.assignments().items():
                counts.setdefault(index, []).append(assignment.membership.flatten())
    focus.detach()
    return [torch.unique(torch.cat(m), return_counts=True)[1].max().item() / sequences.numel() for m in counts.values()]


@pytest.mark.parametrize("hard", [True, False])
def test_calibration_balances_a_skewed_router(hard, tiny_model):
    centroids = build_centroids(tiny_model)
    for router in centroids.routers.values():
        router.potential.copy_(torch.tensor([30.0, 0.0, 0.0, 0.0]))
    sequences = random_ids(64, batch=8)
    before = shares(tiny_model, centroids, sequences)
    old = [r.projection.clone() for r in centroids.routers.values()]
    assert calibrate_potentials(tiny_model, centroids, sequences, hard=hard) is centroids
    after = shares(tiny_model, centroids, sequences)
    assert min(before) > 0.9
    assert max(after) < (0.4 if hard else 0.6)
    assert all(torch.equal(r.projection, p) for r, p in zip(centroids.routers.values(), old, strict=True))
    assert all("logits" not in vars(r) for r in centroids.routers.values())
    assert tiny_model.config._attn_implementation == "eager"


def test_calibration_completes_centroids_without_potentials(tiny_model):
    centroids = build_centroids(tiny_model, potentials=False)
    calibrate_potentials(tiny_model, centroids, random_ids(32, batch=2))
    assert centroids.has_potentials
    compose(tiny_model, centroids)


def test_hard_potential_is_centred_and_never_worse_than_its_start(fresh_seed):
    logits = torch.randn(200, 5) * 3 + torch.tensor([4.0, 0, 0, 0, -4])
    start = torch.randn(5)
    potential = hard_potential(logits, start)

    def largest(b):
        return torch.bincount((logits + b).argmax(-1), minlength=5).max().item() / 200

    assert largest(potential) <= largest(start)
    assert largest(potential) < 0.25
    assert potential.mean().item() == pytest.approx(0, abs=1e-5)
