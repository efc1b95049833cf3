"""The decomposition on the CPU and its gradients against the oracle in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from focus_runtime.attention import decomposed as decomposed_module
from focus_runtime.attention import focus_attention
from focus_runtime.attention.decomposed import subsets_of
from focus_runtime.config import CONSTANT
from focus_runtime.errors import InputError
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.router import top_k_membership
from tests.runtime.attention.by_keyword import (
    decomposed_attention,
    differentiable_attention,
    reference_attention,
    straight_through_attention,
)
from tests.runtime.attention.inputs import FP32, assert_same, oracle, random_inputs, random_membership


def test_subsets_of_memberships():
    assert subsets_of([0b011, 0b110]) == [0b001, 0b010, 0b100, 0b011, 0b110]
    assert subsets_of([0, 0b1000]) == [0b1000]
    with pytest.raises(InputError, match="sets of groups"):
        subsets_of([(1 << 20) - 1])


@pytest.mark.parametrize("block", [1, 3, 32, 128])
@pytest.mark.parametrize("top_k", [1, 2])
def test_decomposed_block_size_changes_nothing(block, top_k, monkeypatch, fresh_seed):
    monkeypatch.setattr(decomposed_module, "LOCAL_BLOCK", block)
    inputs, membership = random_inputs(77, dtype=torch.float32), random_membership(77, top_k=top_k)
    settings: dict[str, Any] = {"window": 10, "num_sinks": 2, "scale": 0.35}
    assert_same(decomposed_attention(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


def test_decomposed_with_an_enormous_window_needs_no_enormous_memory(fresh_seed):
    inputs, membership = random_inputs(20, dtype=torch.float32), random_membership(20)
    settings: dict[str, Any] = {"window": 2**31 - 1, "scale": 0.35}
    assert_same(decomposed_attention(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


HEADS, KV_HEADS, DIM, SCALE = 4, 2, 8, 0.35


def leaves(length, *, batch=2, dtype=torch.float64):
    shapes = [(batch, heads, length, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    return [torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def gradients(out, upstream, inputs):
    return torch.autograd.grad((out * upstream.to(out.dtype)).sum(), inputs)


@pytest.mark.parametrize(("length", "top_k"), [(1, 1), (63, 3), (150, 1), (150, 2)])
@pytest.mark.parametrize(
    ("window", "num_sinks", "growth"),
    [
        *((window, sinks, CONSTANT) for window, sinks in ((0, 0), (7, 0), (0, 3), (17, 2), (1000, 1), (2, 1000))),
        *((window, 2, growth) for window, growth in ((1, (1, 1000)), (9, (40, 170)), (50, (60, 400)))),
    ],
)
def test_gradients_equal_the_oracles(top_k, length, window, num_sinks, growth, fresh_seed):
    inputs, membership = leaves(length), random_membership(length, groups=5, top_k=top_k, batch=2)
    upstream = torch.randn(inputs[0].shape, dtype=torch.float64)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "growth": growth, "scale": SCALE}
    out, lse = differentiable_attention(*inputs, membership, **settings)
    expected, expected_lse = reference_attention(*inputs, membership, **settings)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-10, atol=1e-12)
    for actual, exact in zip(gradients(out, upstream, inputs), gradients(expected, upstream, inputs), strict=True):
        torch.testing.assert_close(actual, exact, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("top_k", [1, 2])
def test_gradients_in_fp32_from_whichever_forward_pass_is_fastest(top_k, fresh_seed):
    inputs, membership = leaves(200, dtype=torch.float32), random_membership(200, groups=5, top_k=top_k, batch=2)
    upstream = torch.randn(inputs[0].shape)
    settings: dict[str, Any] = {"window": 17, "num_sinks": 2}
    actual = gradients(focus_attention(*inputs, membership, backend="decomposed", **settings), upstream, inputs)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    reference = gradients(focus_attention(*exact, membership, backend="reference", **settings), upstream, exact)
    for one, other in zip(actual, reference, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("backend", ["masked", "decomposed", "auto"])
def test_every_backend_with_gradients(backend, monkeypatch, fresh_seed):
    monkeypatch.setattr("focus_runtime.attention.masked.SQUARE", 16)  # beyond it blocks are merged
    inputs, membership = leaves(40), random_membership(40, groups=5, top_k=1, batch=2)
    upstream = torch.randn(inputs[0].shape, dtype=torch.float64)
    results = [
        gradients(focus_attention(*inputs, membership, window=3, num_sinks=2, backend=name), upstream, inputs)
        for name in (backend, "reference")
    ]
    for actual, exact in zip(*results, strict=True):
        torch.testing.assert_close(actual, exact, rtol=1e-8, atol=1e-10)


def dense_straight_through(inputs, probabilities, *, top_k, window, num_sinks, growth):
    """The definition in `straight_through_attention`, by autograd over every pair."""
    query, key, value = inputs
    length = query.shape[2]
    membership = top_k_membership(probabilities.detach(), top_k)
    position = torch.arange(length)
    distance = position[:, None] - position[None, :]
    rule = PairRule(window, num_sinks, growth=growth)
    always = (distance <= rule.near(position)[:, None]) | (position[None, :] < num_sinks)
    member = ((membership[..., None] >> torch.arange(probabilities.shape[-1])) & 1).to(query.dtype)
    soft = member * (1 + probabilities - probabilities.detach())
    affinity = soft @ soft.transpose(1, 2)
    weight = torch.where(always, 1.0, 1 + affinity - affinity.detach())[:, None]
    allowed = allowed_pairs(membership, membership, position, position, rule)[:, None]
    repeats = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(repeats, 1).transpose(-1, -2) * SCALE
    scores = scores.masked_fill(~allowed, float("-inf"))
    weights = torch.exp(scores - scores.detach().amax(-1, keepdim=True)) * weight
    return weights / weights.sum(-1, keepdim=True) @ value.repeat_interleave(repeats, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("top_k", "window", "num_sinks", "growth"),
    [
        *((1, window, sinks, CONSTANT) for window, sinks in ((0, 0), (7, 0), (0, 3), (1000, 1))),
        *((top_k, 17, 2, CONSTANT) for top_k in (2, 3)),
        *((top_k, 9, 2, (20, 70)) for top_k in (2, 3)),
    ],
)
def test_straight_through_gradients_equal_the_dense_definition(top_k, window, num_sinks, growth, fresh_seed):
    inputs = leaves(100)
    probabilities = torch.softmax(2 * torch.randn(2, 100, 5, dtype=torch.float64), -1).requires_grad_()
    upstream = torch.randn(inputs[0].shape, dtype=torch.float64)
    settings: dict[str, Any] = {"top_k": top_k, "window": window, "num_sinks": num_sinks, "growth": growth}
    out = straight_through_attention(*inputs, probabilities, scale=SCALE, **settings)
    expected = dense_straight_through(inputs, probabilities, **settings)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    tensors = [*inputs, probabilities]
    for actual, exact in zip(gradients(out, upstream, tensors), gradients(expected, upstream, tensors), strict=True):
        torch.testing.assert_close(actual, exact, rtol=1e-8, atol=1e-9)


def test_gradients_of_tokens_without_groups(fresh_seed):
    inputs, membership = leaves(40), random_membership(40, groups=5, top_k=1, batch=2)
    membership[:, ::3] = 0
    settings: dict[str, Any] = {"window": 0, "num_sinks": 0, "scale": SCALE}
    results = [
        torch.autograd.grad(run(*inputs, membership, **settings)[0].square().sum(), inputs)
        for run in (differentiable_attention, reference_attention)
    ]
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-10)
