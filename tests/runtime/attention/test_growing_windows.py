"""Windows that grow with the position: every way of computing them, against the oracle in float64."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from focus_runtime.attention import focus_attention, soft
from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.fused import HeadRules, fused_by_head, fused_step
from focus_runtime.attention.masked import WindowedFocus
from focus_runtime.attention.reference import Scoring
from focus_runtime.attention.varlen import PLAIN
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import PairRule
from tests.runtime.attention.by_keyword import (
    decode_attention,
    decomposed_attention,
    differentiable_attention,
    flash_decomposition,
    fused_attention,
    gated_attention,
    gated_attention_reference,
    masked_attention,
    reference_attention,
    sliding_attention,
    straight_through_attention,
)
from tests.runtime.attention.inputs import (
    FP32,
    assert_same,
    needs_compiler,
    oracle,
    padded,
    random_inputs,
    random_membership,
)

# window, first and last position of its growth: from the start, within the text, cut off, to more than the text
GROWTHS = [(1, (1, 1000)), (9, (40, 170)), (5, (10, 60)), (0, (3, 100)), (50, (60, 400)), (70, (20, 90))]
WAYS = [
    masked_attention,
    decomposed_attention,
    *(
        pytest.param(functools.partial(fused_attention, mode=mode), marks=needs_compiler, id=mode)
        for mode in ("by class", "dense")
    ),
]
growing = pytest.mark.parametrize(("window", "growth"), GROWTHS)


@growing
@pytest.mark.parametrize("length", [1, 65, 230])
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("run", WAYS)
def test_a_whole_text(run, top_k, length, window, growth, fresh_seed):
    inputs = random_inputs(length, dtype=torch.float32)
    membership = random_membership(length, groups=5, top_k=top_k)
    settings: dict[str, Any] = {"window": window, "growth": growth, "num_sinks": 3, "scale": 0.35}
    assert_same(run(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


@growing
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_the_flash_decomposition(top_k, window, growth, fresh_seed):
    inputs, membership = random_inputs(150), random_membership(150, groups=5, top_k=top_k)
    settings: dict[str, Any] = {"window": window, "growth": growth, "num_sinks": 3, "scale": 0.35}
    actual = flash_decomposition(*inputs, membership, kernel=PLAIN, **settings)
    assert_same(actual, oracle(inputs, membership, **settings), 1e-9)


@pytest.mark.slow
@growing
@pytest.mark.parametrize("queries", [1, 120])
@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("run", [*WAYS[2:], masked_attention, decode_attention])
def test_the_newest_tokens_with_padding(run, side, queries, window, growth, fresh_seed):
    inputs = random_inputs(150, batch=2, queries=queries, dtype=torch.float32)
    membership, real = random_membership(150, batch=2), padded(150, 2, side) if side else None
    settings: dict[str, Any] = {"window": window, "growth": growth, "num_sinks": 3, "scale": 0.35}
    actual = run(*inputs, membership, key_padding=real, **settings)
    assert_same(actual, oracle(inputs, membership, key_padding=real, **settings), FP32)


@needs_compiler
@pytest.mark.parametrize("length", [33, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sliding", [None, 50])
def test_heads_of_unequal_windows(sliding, dtype, length, fresh_seed):
    windows, growth = [4, 30, 0, 9], (20, 200)
    heads = HeadRules([0, 1, 3, 2], [1, 0, 0, 1], windows, (2, 1))
    inputs = random_inputs(length, heads=4, kv_heads=4, dim=16, dtype=dtype)
    groups = torch.stack([random_membership(length, groups=8, top_k=k) for k in (2, 1)])
    rule = PairRule(0, 3, sliding, growth)
    actual = fused_by_head(*inputs, groups, heads, rule, Scoring(0.3))
    for head, setting in enumerate(heads.head.tolist()):
        one = tuple(x[:, head : head + 1] for x in inputs)
        own, focus = groups[heads.plane[setting]], PairRule(windows[setting], 3, growth=growth)
        inside = WindowedFocus(own, torch.arange(length)[None], focus)
        expected = sliding_attention(*(x.double() for x in one), sliding or length, scale=0.3, focus=inside)
        tolerance = FP32 if dtype == torch.float32 else 1.5e-2
        torch.testing.assert_close(
            actual[:, :, head : head + 1].transpose(1, 2).double(), expected, rtol=tolerance, atol=tolerance
        )


@needs_compiler
@torch.no_grad()
@pytest.mark.parametrize("queries", [1, 5])
def test_a_step_of_heads_of_unequal_windows(queries, fresh_seed):
    windows, growth = [4, 2**62, 9], (20, 100)
    heads = HeadRules([0, 1, 2, 2], [1, 0, 0], windows, (2, 1))
    inputs = random_inputs(150, heads=4, kv_heads=4, dim=16, queries=queries, dtype=torch.float32)
    groups = torch.stack([random_membership(150, groups=8, top_k=k) for k in (2, 1)])
    actual = fused_step(*inputs, groups, heads, PairRule(0, 3, growth=growth), Scoring(0.3), StageClock())
    for head, setting in enumerate(heads.head.tolist()):
        one = tuple(x[:, head : head + 1].double() for x in inputs)
        window = min(windows[setting], 150)
        settings: dict[str, Any] = {"window": window, "growth": growth, "num_sinks": 3, "scale": 0.3}
        expected = reference_attention(*one, groups[heads.plane[setting]], **settings)[0]
        got = actual[:, :, head : head + 1].transpose(1, 2).double()
        torch.testing.assert_close(got, expected, rtol=FP32, atol=FP32)


@growing
def test_gradients_in_memory_linear_in_the_text(window, growth, fresh_seed):
    inputs = [x.requires_grad_() for x in random_inputs(140)]
    membership, upstream = random_membership(140, groups=5, top_k=2), torch.randn(1, 4, 140, 8, dtype=torch.float64)
    settings: dict[str, Any] = {"window": window, "growth": growth, "num_sinks": 2, "scale": 0.35}
    found = [
        torch.autograd.grad((run(*inputs, membership, **settings)[0] * upstream).sum(), inputs)
        for run in (differentiable_attention, reference_attention)
    ]
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-9)


@growing
def test_the_straight_through_gradient_is_of_pairs_that_groups_keep(window, growth, fresh_seed):
    """Tokens of which every kept pair is near, or with a sink, give the routers no gradient; all others do."""
    query, key, value = random_inputs(60)
    groups = torch.softmax(2 * torch.randn(1, 60, 4, dtype=torch.float64), -1).requires_grad_()
    settings: dict[str, Any] = {"window": window, "growth": growth, "num_sinks": 2, "scale": 0.35, "top_k": 1}
    straight_through_attention(query, key, value, groups, **settings).square().sum().backward()
    rule, at = PairRule(window, growth=growth), torch.arange(60)
    own = groups.argmax(-1)[0]
    far = (own[:, None] == own) & (at[:, None] - at > rule.near(at)[:, None]) & (at >= 2)
    touched = far.any(0) | far.any(1)
    assert (groups.grad[0].abs().sum(-1) > 1e-12).tolist() == touched.tolist()


@growing
@pytest.mark.parametrize("mode", [{"gate": "log"}, {"gate": "paper"}, {"gate": "log", "hard_top_k": 1}])
def test_soft_gates(mode, window, growth, fresh_seed, monkeypatch):
    monkeypatch.setattr(soft, "CPU_BLOCK", 0)
    monkeypatch.setattr(soft, "FEWEST_ROWS", 7)
    inputs = [x.requires_grad_() for x in random_inputs(60)]
    probabilities = torch.softmax(torch.randn(1, 60, 4, dtype=torch.float64), -1).requires_grad_()
    settings: dict[str, Any] = {"window": window, "growth": growth, "num_sinks": 2, "scale": 0.35, **mode}
    found = []
    for run in (gated_attention, gated_attention_reference):
        out = run(*inputs, probabilities, **settings)
        found.append([out, *torch.autograd.grad(out.square().sum(), [*inputs, probabilities])])
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected)
    if mode.get("hard_top_k"):
        membership = 1 << probabilities.argmax(-1)
        del settings["gate"], settings["hard_top_k"]
        torch.testing.assert_close(found[0][0], reference_attention(*inputs, membership, **settings)[0])


@pytest.mark.parametrize("backend", ["auto", "reference", "masked", "decomposed", "decode"])
def test_the_public_function(backend, fresh_seed):
    inputs, membership = random_inputs(130, dtype=torch.float32), random_membership(130)
    out = focus_attention(*inputs, membership, window=5, num_sinks=2, window_growth=[10, 60], backend=backend)
    expected, _ = oracle(inputs, membership, window=5, num_sinks=2, growth=(10, 60), scale=8**-0.5)
    torch.testing.assert_close(out.double(), expected, rtol=FP32, atol=FP32)


@pytest.mark.parametrize("growth", [(0, 5), (6, 5), (5,), 7, (1.5, 3), (True, 4), "ab"])
def test_what_is_no_growth_is_refused(growth):
    inputs, membership = random_inputs(6, dtype=torch.float32), random_membership(6)
    with pytest.raises(InputError, match="window_growth is"):
        focus_attention(*inputs, membership, window=5, window_growth=growth)
