"""Sliding perplexity against its definition: every token scored once, with at least the context it was promised."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime import compose, perplexity
from focus_runtime.errors import InputError
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids


@torch.no_grad()
def by_definition(model, ids, length, stride):
    """Loss of each token from a forward pass of its own window."""
    losses = []
    for position in range(1, len(ids)):
        start = 0
        while start + length <= position:
            start += stride
        window = torch.tensor([ids[start : position + 1]])
        logits = model(input_ids=window, use_cache=False).logits[0, -2].double()
        losses.append(torch.logsumexp(logits, -1).item() - logits[ids[position]].item())
    return losses


@pytest.mark.parametrize(("length", "stride"), [(8, 4), (8, 7), (8, 1), (7, 3), (2, 1), (50, 25), (30, None)])
@pytest.mark.parametrize("total", [2, 8, 9, 29, 30])
def test_perplexity_is_its_definition(tiny_model, length, stride, total):
    ids = random_ids(total, seed=total)[0].tolist()
    result = perplexity(tiny_model, ids, length=length, stride=stride)
    expected = by_definition(tiny_model, ids, length, stride or length // 2)
    assert result.nll.tolist() == pytest.approx(expected, abs=1e-4)
    assert result.scored == total - 1
    assert float(result) == result.value == pytest.approx(math.exp(sum(expected) / len(expected)), rel=1e-4)


def test_text_tokens_and_tensors_are_the_same(tiny_model):
    tokenizer, text = build_tokenizer(), "It is a truth universally acknowledged."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    values = [
        perplexity(tiny_model, text, tokenizer=tokenizer, length=16).value,
        perplexity(tiny_model, ids, length=16).value,
        perplexity(tiny_model, torch.tensor([ids]), length=16).value,
        perplexity(tiny_model, torch.tensor(ids), length=16).value,
    ]
    assert len(set(values)) == 1
    assert perplexity(tiny_model, ids, length=16, max_tokens=10).scored == 9


def test_a_composed_model_is_scored_under_focus(tiny_model):
    ids = random_ids(60)[0].tolist()
    full = perplexity(tiny_model, ids, length=32).value
    focus = compose(tiny_model, build_centroids(tiny_model))
    try:
        sparse = perplexity(focus, ids, length=32).value
        assert sparse == perplexity(tiny_model, ids, length=32).value != full
        with focus.full_attention():
            assert perplexity(focus, ids, length=32).value == full
    finally:
        focus.detach()


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("a text", {}, "tokenizer"),
        ([5], {}, "1 tokens"),
        ([], {}, "0 tokens"),
        ([5, 6, 7], {"length": 1}, "length is 1"),
        ([5, 6, 7], {"length": 8, "stride": 8}, "stride 8"),
        ([5, 6, 7], {"length": 8, "stride": 0}, "stride is 0"),
        ([5, 6, 7], {"length": "16"}, "length is '16'"),
        ([5, 6, 7], {"length": 10.5}, "length is 10.5"),
        ([5, 6, 7], {"length": None}, "length is None"),
        ([5, 6, 7], {"max_tokens": -5}, "max_tokens is -5"),
        ([5, 6, 7], {"max_tokens": 2.5}, "max_tokens is 2.5"),
        (None, {}, "NoneType"),
        ([5, 6, 100_000], {}, "ids of this model"),
        ([5, -1], {}, "ids of this model"),
        ([5, 6.5], {}, "whole numbers"),
        ([[5, 6], [7, 8]], {}, "2 texts"),
    ],
)
def test_bad_input_is_named(tiny_model, text, settings, message):
    with pytest.raises(InputError, match=message):
        perplexity(tiny_model, text, **settings)


def test_more_tokens_than_learned_positions_is_one_message():
    with pytest.raises(InputError, match="positions"):
        perplexity(build_model("GPT2", max_position_embeddings=32), random_ids(60)[0].tolist(), length=50)


def test_numpy_ids(tiny_model):
    ids = random_ids(20)[0]
    assert perplexity(tiny_model, ids.numpy(), length=8).value == perplexity(tiny_model, ids, length=8).value
