"""All backends, through the public op and by name, against the oracle in float64."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from focus_runtime.attention import focus_attention
from focus_runtime.config import CONSTANT
from focus_runtime.errors import InputError
from tests.runtime.attention.by_keyword import decode_attention, decomposed_attention, fused_attention, masked_attention
from tests.runtime.attention.inputs import (
    FP32,
    INF,
    assert_same,
    needs_compiler,
    oracle,
    padded,
    random_inputs,
    random_membership,
)

BF16 = 1.5e-2


FAST = [masked_attention, decomposed_attention, pytest.param(fused_attention, marks=needs_compiler)]


# Windows, sinks, and positions between which windows grow: not at all, from the start, within the text, beyond it.
RULES = [
    *((window, sinks, CONSTANT) for window, sinks in ((0, 0), (5, 0), (17, 4), (64, 1), (1000, 0), (3, 1000))),
    *((window, 3, growth) for window, growth in ((1, (1, 1000)), (9, (40, 170)), (0, (3, 100)), (70, (20, 90)))),
]
WAYS = [
    masked_attention,
    decomposed_attention,
    *(
        pytest.param(functools.partial(fused_attention, mode=mode), marks=needs_compiler, id=mode)
        for mode in ("by class", "dense")
    ),
]


@pytest.mark.parametrize("run", WAYS)
@pytest.mark.parametrize(("length", "top_k"), [(1, 1), (65, 3), (200, None)])
@pytest.mark.parametrize(("window", "num_sinks", "growth"), RULES)
def test_every_way_equals_the_oracle(run, length, window, num_sinks, growth, top_k, fresh_seed):
    """Batches whose heads share keys, laid out as models hand them over: (B, T, H, D), transposed."""
    top_k = top_k or 1 + fresh_seed % 2
    inputs = random_inputs(length, batch=2, heads=6, kv_heads=3, dtype=torch.float32)
    inputs = tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs)
    membership = random_membership(length, groups=5, top_k=top_k, batch=2)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "growth": growth, "scale": 0.35}
    assert_same(run(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


@pytest.mark.parametrize("run", FAST)
@pytest.mark.parametrize("used", [[3], [0, 3], [2, 40], [62]])
def test_empty_groups(run, used, fresh_seed):
    inputs = random_inputs(90, dtype=torch.float32)
    membership = 1 << torch.tensor(used)[torch.randint(len(used), (1, 90))]  # bits beyond 31 as well
    settings: dict[str, Any] = {"window": 9, "num_sinks": 2, "scale": 0.35}
    assert_same(run(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


@pytest.mark.parametrize("run", FAST)
def test_large_scores(run, fresh_seed):
    """Scores around 100, where a softmax without subtracting the maximum overflows."""
    inputs, membership = random_inputs(100, dtype=torch.float32), random_membership(100)
    settings: dict[str, Any] = {"window": 9, "num_sinks": 2, "scale": 40.0}
    assert_same(run(*inputs, membership, **settings), oracle(inputs, membership, **settings), 5e-4)


@pytest.mark.parametrize("run", FAST)
@pytest.mark.parametrize("length", [65, 200])
def test_bfloat16(run, length, fresh_seed):
    inputs, membership = random_inputs(length, dim=16, dtype=torch.bfloat16), random_membership(length)
    settings: dict[str, Any] = {"window": 17, "num_sinks": 4, "scale": 0.25}
    out, lse = run(*inputs, membership, **settings)
    assert out.dtype == torch.bfloat16
    assert lse.dtype == torch.float32
    assert_same((out, lse), oracle(inputs, membership, **settings), BF16)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize(("softcap", "growth"), [(None, CONSTANT), (2.0, CONSTANT), (None, (10, 30))])
@pytest.mark.parametrize("run", [FAST[0], FAST[2], decode_attention])
def test_padding(run, side, top_k, softcap, growth, fresh_seed):
    inputs = random_inputs(40, batch=3, dtype=torch.float32)
    membership, real = random_membership(40, top_k=top_k, batch=3), padded(40, 3, side)
    settings: dict[str, Any] = {"window": 3, "num_sinks": 2, "scale": 0.35, "key_padding": real, "softcap": softcap}
    settings["growth"] = growth
    actual = run(*inputs, membership, **settings)
    assert_same(actual, oracle(inputs, membership, **settings), FP32)
    if side == "left":  # a padded query sees nothing
        assert (actual[0][1, :, :3] == 0).all()
        assert (actual[1][1, :, :3] == -INF).all()


@pytest.mark.parametrize("window", [3, 1000])
@pytest.mark.parametrize("queries", [1, 7, 39])
@pytest.mark.parametrize("run", [FAST[0], FAST[2]])
def test_fewer_queries_than_keys(run, window, queries, fresh_seed):
    inputs = random_inputs(40, queries=queries, dtype=torch.float32)
    membership = random_membership(40, top_k=2, groups=5)
    settings: dict[str, Any] = {"window": window, "num_sinks": 2, "scale": 0.35}
    assert_same(run(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


def test_facts_of_the_method(fresh_seed):
    """k = K, k > K/2 and w >= T-1 give full attention (METHOD section 3)."""
    inputs = random_inputs(50, dtype=torch.float32)
    query, key, value = inputs
    full = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    for top_k, window in ((4, 0), (3, 0), (1, 49)):
        out = focus_attention(*inputs, random_membership(50, top_k=top_k), window=window)
        torch.testing.assert_close(out, full, rtol=FP32, atol=FP32)
    membership = torch.ones(1, 50, dtype=torch.int64)
    membership[0, 49] = 2  # the last query loses the first key, and no other pair changes
    out = focus_attention(*inputs, membership, window=48)
    torch.testing.assert_close(out[:, :, :49], full[:, :, :49], rtol=FP32, atol=FP32)
    assert (out[:, :, 49] != full[:, :, 49]).any()


@pytest.mark.parametrize(
    "backend", ["auto", "reference", "masked", "decomposed", pytest.param("fused", marks=needs_compiler)]
)
def test_every_backend_gives_the_same_and_the_default_scale(backend, fresh_seed):
    inputs, membership = random_inputs(70, dtype=torch.float32), random_membership(70)
    actual = focus_attention(*inputs, membership, window=5, num_sinks=2, backend=backend, return_lse=True)
    assert_same(actual, oracle(inputs, membership, window=5, num_sinks=2, scale=8**-0.5), FP32)
    out = focus_attention(*inputs, membership, window=5, num_sinks=2, backend=backend)
    assert torch.equal(out, actual[0])


@pytest.mark.parametrize("backend", ["reference", "masked", "decomposed"])
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_logsumexp_dtype(backend, dtype, expected):
    inputs, membership = random_inputs(20, dtype=dtype), random_membership(20)
    out, lse = focus_attention(*inputs, membership, window=2, num_sinks=1, backend=backend, return_lse=True)
    assert (out.dtype, lse.dtype) == (dtype, expected)


@pytest.mark.parametrize("run", FAST)
@pytest.mark.parametrize(("length", "window"), [(30, 0), (30, 3), (1, 0)])
def test_tokens_without_groups_still_see_themselves(run, length, window, fresh_seed):
    inputs, membership = random_inputs(length, dtype=torch.float32), random_membership(length)
    membership[0, ::3] = 0
    settings: dict[str, Any] = {"window": window, "num_sinks": 0, "scale": 0.35}
    assert_same(run(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


def test_auto_takes_values_of_any_layout(fresh_seed):
    query, key, value = random_inputs(64, dtype=torch.float32)
    membership = random_membership(64)
    turned = value.transpose(2, 3).contiguous().transpose(2, 3)
    out = focus_attention(query, key, turned, membership, window=5)
    torch.testing.assert_close(out, focus_attention(query, key, value, membership, window=5), rtol=FP32, atol=FP32)


@pytest.mark.parametrize("backend", ["auto", "reference", "masked", "decomposed", "decode"])
def test_windows_that_grow_through_the_public_function(backend, fresh_seed):
    inputs, membership = random_inputs(130, dtype=torch.float32), random_membership(130)
    out = focus_attention(*inputs, membership, window=5, num_sinks=2, window_growth=[10, 60], backend=backend)
    expected, _ = oracle(inputs, membership, window=5, num_sinks=2, growth=(10, 60), scale=8**-0.5)
    torch.testing.assert_close(out.double(), expected, rtol=FP32, atol=FP32)


@pytest.mark.parametrize("growth", [(0, 5), (6, 5), (5,), 7, (1.5, 3), (True, 4), "ab"])
def test_what_is_no_growth_is_refused(growth):
    inputs, membership = random_inputs(6, dtype=torch.float32), random_membership(6)
    with pytest.raises(InputError, match="window_growth is"):
        focus_attention(*inputs, membership, window=5, window_growth=growth)
