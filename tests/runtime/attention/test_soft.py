"""Soft gates: gradients, equation 2 and the log gate against explicit loops, limits that must meet the hard mask."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from focus_runtime.attention import soft
from focus_runtime.config import CONSTANT
from tests.runtime.attention.by_keyword import gated_attention, gated_attention_reference, reference_attention

MODES: list[dict[str, Any]] = [
    {"gate": "log"},
    {"gate": "paper", "steepness": 3.0},
    {"gate": "log", "hard_top_k": 1},
    {"gate": "log", "hard_top_k": 2},
    {"gate": "paper", "hard_top_k": 1},
]


@pytest.fixture
def small_blocks(monkeypatch):
    """Seven rows in a block, so that short texts have several and a last one that is not full."""
    monkeypatch.setattr(soft, "CPU_BLOCK", 0)
    monkeypatch.setattr(soft, "FEWEST_ROWS", 7)


def random_inputs(length=9, *, groups=3, batch=1, heads=2, kv_heads=1, dim=4):
    query = torch.randn(batch, heads, length, dim, dtype=torch.float64)
    key, value = (torch.randn(batch, kv_heads, length, dim, dtype=torch.float64) for _ in range(2))
    return query, key, value, torch.softmax(torch.randn(batch, length, groups, dtype=torch.float64), -1)


def loop_gated(query, key, value, probabilities, *, window, num_sinks, gate, scale, steepness=8.0, softcap=None):
    """METHOD section 2, one pair at a time."""
    out, repeats = torch.zeros_like(query), query.shape[1] // key.shape[1]
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            for i in range(query.shape[2]):
                logits = []
                for j in range(i + 1):
                    logit = float(query[b, h, i] @ key[b, h // repeats, j]) * scale
                    if softcap:
                        logit = softcap * math.tanh(logit / softcap)
                    affinity = float(probabilities[b, i] @ probabilities[b, j])
                    if i - j > window and j >= num_sinks:
                        if gate == "paper":
                            logit *= 1 / (1 + math.exp(-steepness * affinity))
                        else:
                            logit += math.log(affinity)
                    logits.append(logit)
                weights = torch.softmax(torch.tensor(logits, dtype=torch.float64), -1)
                out[b, h, i] = weights @ value[b, h // repeats, : i + 1]
    return out


@pytest.mark.parametrize("gate", ["log", "paper"])
@pytest.mark.parametrize(("window", "num_sinks"), [(0, 0), (2, 0), (1, 3), (50, 0)])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_gates_equal_a_loop(gate, window, num_sinks, softcap, fresh_seed):
    inputs = random_inputs(batch=2)
    settings: dict[str, Any] = {
        "window": window,
        "num_sinks": num_sinks,
        "gate": gate,
        "scale": 0.7,
        "steepness": 3.0,
        "softcap": softcap,
    }
    torch.testing.assert_close(gated_attention(*inputs, **settings), loop_gated(*inputs, **settings))


@pytest.mark.parametrize("gate", [{"gate": "log"}, {"gate": "paper"}, {"gate": "log", "hard_top_k": 1}])
def test_pairs_with_a_token_of_all_groups_are_not_weakened(gate, small_blocks, fresh_seed):
    query, key, value, probabilities = random_inputs(25, batch=2)
    everywhere = torch.rand(2, 25) < 0.2
    probabilities = torch.where(everywhere[..., None], 0.0, probabilities)  # which the gate must not look at
    rule: dict[str, Any] = {"window": 2, "num_sinks": 1, "scale": 0.5}
    seen = gated_attention(query, key, value, probabilities, everywhere=everywhere, **gate, **rule)
    every = gated_attention(query, key, value, probabilities, **{**rule, "window": 25}, **gate)
    assert torch.equal(seen.transpose(1, 2)[everywhere], every.transpose(1, 2)[everywhere])
    if "hard_top_k" in gate:
        best = 1 << probabilities.argmax(-1)
        membership = torch.where(everywhere, 7, best)
        torch.testing.assert_close(seen, reference_attention(query, key, value, membership, **rule)[0])
    inputs = (query, key, value, probabilities)
    actual = gradients(gated_attention, inputs, query, everywhere=everywhere, **gate, **rule)
    expected = gradients(gated_attention_reference, inputs, query, everywhere=everywhere, **gate, **rule)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)


def one_hot(length, groups=3):
    chosen = torch.randint(groups, (1, length))
    return torch.nn.functional.one_hot(chosen, groups).double(), 1 << chosen


@pytest.mark.parametrize("hard", [None, 1])
def test_log_gate_of_one_hot_probabilities_is_the_hard_mask(hard, fresh_seed):
    query, key, value, _ = random_inputs(30)
    probabilities, membership = one_hot(30)
    settings: dict[str, Any] = {"window": 3, "num_sinks": 2, "scale": 0.5}
    soft = gated_attention(query, key, value, probabilities, gate="log", hard_top_k=hard, **settings)
    exact, _ = reference_attention(query, key, value, membership, **settings)
    torch.testing.assert_close(soft, exact, rtol=1e-4, atol=1e-4)  # the floor leaves dropped pairs a weight of 1e-6


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_straight_through_forward_is_the_hard_mask(top_k, fresh_seed):
    query, key, value, probabilities = random_inputs(25, groups=4)
    order = probabilities.topk(top_k, dim=-1).indices
    settings: dict[str, Any] = {"window": 2, "num_sinks": 1, "scale": 0.5}
    out = gated_attention(query, key, value, probabilities, gate="log", hard_top_k=top_k, **settings)
    exact, _ = reference_attention(query, key, value, (1 << order).sum(-1), **settings)
    torch.testing.assert_close(out, exact, rtol=1e-10, atol=1e-10)


def test_a_dropped_pair_with_the_largest_score_leaves_the_hard_mask_exact(fresh_seed):
    """The allowed weights must not round to zero below a score that the mask removes."""
    query, key, value, _ = random_inputs(10, heads=1)
    groups = torch.tensor([[0] + [1, 2, 1] * 3])  # nothing later shares token 0's group
    probabilities = torch.nn.functional.one_hot(groups, 3).double().requires_grad_()
    key[0, 0, 0] = 2000 * query[0, 0, 9]
    settings: dict[str, Any] = {"window": 0, "num_sinks": 0, "scale": 1.0}
    out = gated_attention(query, key, value, probabilities, gate="log", hard_top_k=1, **settings)
    exact, _ = reference_attention(query, key, value, 1 << groups, **settings)
    torch.testing.assert_close(out, exact)
    (gradient,) = torch.autograd.grad(out.sum(), probabilities)
    assert torch.isfinite(gradient).all()


def gradients(function, inputs, upstream, **settings):
    """Output, then the gradients of all inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = function(*leaves, **settings)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream.to(out.dtype))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("window", "num_sinks", "growth"),
    [(0, 0, CONSTANT), (4, 3, CONSTANT), (50, 0, CONSTANT), (9, 50, CONSTANT), (2, 2, (5, 20))],
)
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("length", [1, 30])
def test_blocks_equal_the_dense_reference(mode, window, num_sinks, growth, softcap, length, small_blocks, fresh_seed):
    heads, kv_heads = ((2, 2), (6, 2), (3, 1))[fresh_seed % 3]
    inputs = random_inputs(length, batch=2, heads=heads, kv_heads=kv_heads, dim=8)
    rule = {"window": window, "num_sinks": num_sinks, "growth": growth}
    settings = {**rule, "scale": 0.6, "softcap": softcap, **mode}
    actual = gradients(gated_attention, inputs, inputs[0], **settings)
    exact = gradients(gated_attention_reference, inputs, inputs[0], **settings)
    torch.testing.assert_close(actual, exact)


@pytest.mark.parametrize("mode", MODES[:3])
def test_an_affinity_below_the_floor_gets_no_gradient(mode, small_blocks, fresh_seed):
    query, key, value, _ = random_inputs(20)
    probabilities, _ = one_hot(20)
    settings = {"window": 1, "num_sinks": 1, "scale": 0.5, **mode}
    inputs = (query, key, value, 0.999 * probabilities)
    actual = gradients(gated_attention, inputs, query, **settings)
    torch.testing.assert_close(actual, gradients(gated_attention_reference, inputs, query, **settings))


@pytest.mark.parametrize("mode", MODES[:3])
def test_bfloat16_queries_with_float32_probabilities(mode, fresh_seed):
    inputs = random_inputs(200, heads=6, kv_heads=2, dim=16)
    upstream = torch.randn_like(inputs[0])
    settings = {"window": 8, "num_sinks": 2, "scale": 0.25, **mode}
    exact = gradients(
        gated_attention_reference, [x.bfloat16().double() for x in inputs[:3]] + [inputs[3]], upstream, **settings
    )
    half = [x.bfloat16() for x in inputs[:3]] + [inputs[3].float()]
    actual = gradients(gated_attention, half, upstream, **settings)
    assert [x.dtype for x in actual] == [torch.bfloat16] * 4 + [torch.float32]
    for ours, true in zip(actual, exact, strict=True):
        assert (ours.double() - true).norm() < 0.03 * true.norm()
    with torch.autocast("cpu", torch.bfloat16):
        under = gradients(gated_attention, half, upstream, **settings)
    torch.testing.assert_close(under, actual, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("mode", MODES[:3])
def test_nothing_quadratic_is_kept_for_the_backward_pass(mode):
    kept: list[int] = []
    inputs = [x.requires_grad_() for x in random_inputs(300)]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        gated_attention(*inputs, window=2, num_sinks=1, scale=0.5, **mode)
    assert 0 < max(kept) <= inputs[0].numel()
