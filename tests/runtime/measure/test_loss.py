"""Losses, predictions, dominance and pair shares against plain definitions, in several families and across slabs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.budget import HeadGroup, HeadSetting
from focus_runtime.composition.heads import HeadMask
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure import loss as measure
from focus_runtime.measure.loss import (
    dominance,
    final_hidden,
    layer_shares,
    token_nll,
    token_predictions,
    vocabulary_logits,
)
from tests.helpers import build_model, random_ids
from tests.runtime.families import family_model, logits


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
    monkeypatch.setattr(measure, "CHUNK", chunk)
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


def shares_of(membership, rule):
    """`layer_shares` of one text whose heads are alike."""
    mask = HeadMask(HeadGroup(HeadSetting(1, rule.window), (0,)), torch.from_numpy(membership)[None], rule)
    return layer_shares([mask])


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
    retained, distant = shares_of(membership, PairRule(window, sinks, sliding))
    assert retained == pytest.approx(len(kept) / len(causal))
    assert distant == (pytest.approx(sum(p in shared for p in far) / len(far)) if far else None)


def test_pair_shares_when_nothing_is_far():
    assert shares_of(np.array([1, 2, 1]), PairRule(2)) == (1.0, None)


@pytest.mark.parametrize(
    ("top", "expected"), [([0, 1, 2, 3], 0.25), ([0, 0, 0, 3], 0.75), ([2, 2, 2, 2], 1.0), ([3], 1.0)]
)
def test_dominance(top, expected):
    assert dominance(torch.nn.functional.one_hot(torch.tensor([top]), 4).float()) == expected


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Granite", "GPT2"])
def test_predictions_are_those_of_all_logits(family, monkeypatch, fresh_seed):
    monkeypatch.setattr(measure, "CHUNK", 7)
    model, ids = family_model(family), random_ids(30, seed=fresh_seed % 1000)
    with torch.no_grad():
        hidden = final_hidden(model, ids)
    made = token_predictions(model, hidden, ids)
    expected = logits(model, ids)[0, :-1].double().softmax(dim=-1)
    best = expected.topk(5, dim=-1)
    assert np.allclose(made.probabilities, best.values.numpy(), atol=1e-5)
    chosen = expected.gather(1, torch.from_numpy(made.token_ids))  # ties may go either way
    torch.testing.assert_close(chosen, best.values, rtol=1e-4, atol=1e-6)
    own = expected.gather(1, ids[0, 1:, None])
    surely, perhaps = (1 + (expected > own * factor).sum(dim=1).numpy() for factor in (1 + 1e-5, 1 - 1e-5))
    assert (surely <= made.ranks).all()  # where two probabilities differ by float32's rounding, either rank is right
    assert (made.ranks < perhaps).all()  # `perhaps` counts the token itself
    assert np.allclose(made.nll, -own[:, 0].log().numpy(), atol=1e-4)
    assert np.array_equal(made.nll, token_nll(model, hidden, ids)[0].double().detach().numpy())


def test_a_small_vocabulary_has_fewer_predictions():
    model, ids = family_model("Llama"), random_ids(6)
    with torch.no_grad():
        made = token_predictions(model, final_hidden(model, ids), ids, most_probable=1000)
    assert made.token_ids.shape == (5, 128)
    assert np.allclose(made.probabilities.sum(axis=1), 1, atol=1e-5)
