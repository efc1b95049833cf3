"""Perplexity, dominance and pair shares against plain definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure import loss as measure
from focus_runtime.measure.loss import (
    dominance,
    evaluate_focus,
    evaluate_full,
    final_hidden,
    pair_shares,
    token_nll,
    vocabulary_logits,
)
from focus_runtime.measure.timing import Spread
from tests.helpers import build_centroids, build_model, random_ids


@torch.no_grad()
def cross_entropy(model, ids):
    logits = model(input_ids=ids, use_cache=False).logits.double()
    losses = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return losses.view(ids.shape[0], -1)


@pytest.mark.parametrize("family", ["Llama", "GPT2", "Gemma2", "Phi", "Cohere", "Granite"])
@pytest.mark.parametrize("chunk", [7, 256])
@torch.no_grad()
def test_token_nll_is_the_models_cross_entropy(family, chunk, monkeypatch):
    """Soft-capped (Gemma 2), biased (Phi) and scaled (Cohere, Granite) output embeddings too."""
    monkeypatch.setattr(measure, "CHUNK", chunk)
    model, ids = build_model(family), random_ids(30, batch=2)
    nll = token_nll(model, final_hidden(model, ids), ids)
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll.double(), cross_entropy(model, ids), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["Llama", "GPT2", "Gemma2", "Phi", "Cohere", "Granite"])
@pytest.mark.parametrize("chunk", [7, 256])
def test_gradients_with_a_frozen_output_embedding_are_those_of_the_cross_entropy(
    fresh_seed, family, chunk, monkeypatch
):
    monkeypatch.setattr(measure, "TRAINING_CHUNK", chunk)
    model, ids = build_model(family), random_ids(30, batch=2)
    with torch.no_grad():
        states = final_hidden(model, ids)
    weights = torch.rand(2, 29)  # another upstream gradient for every token

    def gradient(losses_of, frozen):
        model.requires_grad_(not frozen)
        hidden = states.clone().requires_grad_()
        losses = losses_of(hidden)
        return losses.detach(), torch.autograd.grad((losses * weights).sum(), hidden)[0]

    def plain(hidden):
        logits = torch.cat([vocabulary_logits(model, row[None]) for row in hidden])[:, :-1].double()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(
            2, 29
        )

    losses, expected = gradient(plain, True)
    for frozen in (True, False):
        found, grads = gradient(lambda hidden: token_nll(model, hidden, ids), frozen)
        torch.testing.assert_close(found.double(), losses, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(grads, expected, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_token_nll_of_one_token_is_empty(tiny_model):
    ids = random_ids(1)
    assert token_nll(tiny_model, final_hidden(tiny_model, ids), ids).shape == (1, 0)


def test_evaluate_full(tiny_model):
    sequences = random_ids(25, batch=3)
    perplexity, scored = evaluate_full(tiny_model, sequences)
    assert scored == 3 * 24
    assert perplexity == pytest.approx(math.exp(cross_entropy(tiny_model, sequences).mean()), rel=1e-5)


def test_evaluate_focus_is_the_composed_models_own(tiny_model):
    sequences = random_ids(40, batch=3)
    focus = compose(tiny_model, build_centroids(tiny_model))
    quality = evaluate_focus(focus, sequences)
    assert quality.perplexity == pytest.approx(math.exp(cross_entropy(tiny_model, sequences).mean()), rel=1e-5)
    assert quality.scored == 3 * 39
    assert 0.25 <= quality.dominance <= 1
    assert 0 < quality.retained_pairs < 1
    assert 0 <= quality.distant_kept < quality.retained_pairs


def test_evaluate_focus_with_every_group_is_full_attention(tiny_model):
    sequences = random_ids(40, batch=2)
    full, _ = evaluate_full(tiny_model, sequences)
    quality = evaluate_focus(compose(tiny_model, build_centroids(tiny_model), top_k=4), sequences)
    assert quality.perplexity == pytest.approx(full, rel=1e-5)
    assert (quality.retained_pairs, quality.distant_kept) == (1.0, 1.0)


@pytest.mark.parametrize("sliding", [None, 20, 4])
def test_pair_shares_by_a_double_loop(fresh_seed, sliding):
    reach = sliding or 60
    membership = np.random.default_rng(fresh_seed).integers(1, 8, 60)
    window, sinks = 5, 3
    causal = [(i, j) for i in range(60) for j in range(i + 1)]
    shared = {(i, j) for i, j in causal if membership[i] & membership[j]}
    reached = [p for p in causal if p[0] - p[1] < reach]
    kept = [p for p in reached if p in shared or p[0] - p[1] <= window or p[1] < sinks]
    far = [p for p in reached if p[0] - p[1] > window and p[1] >= sinks]
    retained, distant = pair_shares(membership, PairRule(window, sinks, sliding))
    assert retained == pytest.approx(len(kept) / len(causal))
    assert distant == (pytest.approx(sum(p in shared for p in far) / len(far)) if far else None)


def test_pair_shares_when_nothing_is_far():
    assert pair_shares(np.array([1, 2, 1]), PairRule(2)) == (1.0, None)


def test_pair_shares_of_a_long_text_are_quick(fresh_seed):
    membership = 1 << np.random.default_rng(fresh_seed).integers(0, 4, 16_384)
    retained, distant = pair_shares(membership, PairRule(128, 4))
    assert retained == pytest.approx(0.26, abs=0.01)
    assert distant == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("top", "expected"), [([0, 1, 2, 3], 0.25), ([0, 0, 0, 3], 0.75), ([2, 2, 2, 2], 1.0), ([3], 1.0)]
)
def test_dominance(top, expected):
    assert dominance(torch.nn.functional.one_hot(torch.tensor([top]), 4).float()) == expected


def test_spread():
    assert Spread.of([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0, 3)
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0, 1)
