"""The last phase of a training: the hard mask at the settings of inference."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError, TrainingStopped
from focus_runtime.fit.centroids import RouterSteps, centroid_loop, training_focus
from focus_runtime.fit.settings import TrainConfig
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.text.sequences import encode_texts, step_sequences
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids
from tests.runtime.fit.tiny import FOCUS, PLAN, TEXTS, same, train, whole

INFERENCE = FocusConfig(**FOCUS | {"window": 9})


def loop_of(focus, centroids, **changes):
    settings = TrainConfig(**(PLAN | {"batch": 1, "hard_steps": 2} | changes))
    return centroid_loop(focus, centroids, encode_texts(build_tokenizer(), TEXTS, 1), settings, inference=INFERENCE)


def test_a_step_on_the_hard_mask_has_the_loss_of_inference(tiny_model):
    centroids = build_centroids(tiny_model, **FOCUS)
    ids = encode_texts(build_tokenizer(), TEXTS, 1)
    with training_focus(tiny_model, centroids) as focus:
        loop = loop_of(focus, centroids)
        loop.run(until=4)
        composed = [router.potential.clone() for router in centroids.routers.values()]
        with focus.with_config(INFERENCE), torch.no_grad():
            batch = step_sequences(ids, 4, 1, 32, 0)
            expected = token_nll(tiny_model, final_hidden(tiny_model, batch), batch).mean().item()
        loop.run(until=5)
    assert loop.history[-1].loss == pytest.approx(expected, rel=1e-5)
    moved = [router.potential for router in centroids.routers.values()]
    assert all(not torch.equal(a, b) for a, b in zip(composed, moved, strict=True))


def test_the_phase_starts_from_balanced_groups(tiny_model):
    centroids = build_centroids(tiny_model, **FOCUS)
    with training_focus(tiny_model, centroids) as focus:
        loop_of(focus, centroids, calibration_sequences=40).run(until=4)
    focus = compose(tiny_model, centroids, assignment="causal")
    sequences = encode_texts(build_tokenizer(), TEXTS, 1).ids[: 29 * 32].view(-1, 32)
    final_hidden(tiny_model, sequences)
    counts = torch.bincount(focus.assignments()[0].probabilities.argmax(-1).flatten(), minlength=4)
    assert counts.max() / counts.sum() < 0.34


@pytest.mark.parametrize("stop_after", [4, 5])
@pytest.mark.slow
def test_a_training_resumed_around_the_change_is_the_uninterrupted_one(stop_after, tmp_path):
    uninterrupted, losses = whole(hard_steps=2, loss="both")
    file = tmp_path / "run.ckpt"
    seen: list[int] = []
    with pytest.raises(TrainingStopped):
        train(hard_steps=2, loss="both", checkpoint=file, should_stop=lambda: seen.append(1) or len(seen) == stop_after)
    resumed, rest = train(hard_steps=2, loss="both", checkpoint=file, resume=True)
    assert rest == losses[stop_after:]
    assert same(resumed, uninterrupted)


def test_pairs_are_counted_at_the_settings_of_inference(tiny_model):
    centroids = build_centroids(tiny_model, **FOCUS)
    expected = []

    def count(step):
        shares = []
        for assignment in focus.assignments().values():
            membership = assignment.membership[0]
            position = torch.arange(len(membership))
            kept = allowed_pairs(membership, membership, position, position, PairRule(INFERENCE.window, 1))
            shares.append(kept.sum().item() / (position + 1).sum().item())
        expected.append(sum(shares) / len(shares))

    with training_focus(tiny_model, centroids) as focus:
        ids = encode_texts(build_tokenizer(), TEXTS, 1)
        loop = centroid_loop(focus, centroids, ids, TrainConfig(**PLAN), inference=INFERENCE, after_step=count)
        loop.run()
    assert [step.retained_pairs for step in loop.history] == pytest.approx(expected)


def test_masks_at_other_settings_are_those_of_a_pass_at_them(tiny_model):
    budget = (HeadException(layer=0, head=0, top_k=0), HeadException(layer=0, head=1, window=2))
    focus = compose(tiny_model, build_centroids(tiny_model, **FOCUS))
    ids = random_ids(40)
    try:
        for changes in ({"window": 9}, {"top_k": 2, "budget": budget}, {"window_growth": (8, 16)}):
            final_hidden(tiny_model, ids)
            other = focus.config.replace(**changes)
            made = focus.head_masks(other)[0]  # of the first layer, whose groups depend on no mask
            with focus.with_config(other):
                final_hidden(tiny_model, ids)
                expected = focus.head_masks()[0]
            assert [(mask.group, mask.rule) for mask in made] == [(mask.group, mask.rule) for mask in expected]
            assert all(torch.equal(a.membership, b.membership) for a, b in zip(made, expected, strict=True))
    finally:
        focus.detach()


def test_the_paper_gate_has_no_hard_phase():
    model = build_model()
    with (
        training_focus(model, build_centroids(model, gate="paper")) as focus,
        pytest.raises(ConfigError, match="log gate, not with gate 'paper'"),
    ):
        RouterSteps(focus, None, None, TrainConfig(**PLAN, hard_steps=1), focus.config)
