"""Attention backends: the oracle against a triple loop in Python floats, the others against it in float64."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from focus_runtime.attention import choose_backend, costs, focus_attention
from focus_runtime.attention import decomposed as decomposed_module
from focus_runtime.attention import masked as masked_module
from focus_runtime.attention.fused import fused_available
from focus_runtime.attention.inclusion_exclusion import subsets_of
from focus_runtime.attention.masked import covers_everything
from focus_runtime.attention.merging import merge
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import PairRule
from tests.helpers import ROOT
from tests.runtime.attention.by_keyword import (
    decomposed_attention,
    fused_attention,
    masked_attention,
    reference_attention,
)

INF = float("inf")
FP32 = 5e-6  # the target of RUNTIME.md for values around 1
BF16 = 1.5e-2


def loop_attention(query, key, value, membership, *, window, num_sinks, scale, real=None, softcap=None):
    """Focus attention by its definition, one query, head and key at a time, in Python floats."""
    batch, heads, length_q, dim = query.shape
    length_k, repeats = key.shape[2], heads // key.shape[1]
    real = real.tolist() if real is not None else [[True] * length_k] * batch
    q, k, v, groups = (x.tolist() for x in (query, key, value, membership))
    out = torch.zeros(query.shape, dtype=torch.float64)
    lse = torch.full((batch, heads, length_q), -INF, dtype=torch.float64)
    for b in range(batch):
        first = real[b].index(True)
        for h in range(heads):
            for t in range(length_q):
                i, scores = t + length_k - length_q, {}
                for j in range(i + 1):
                    visible = groups[b][i] & groups[b][j] or i - j <= window or j - first < num_sinks
                    if real[b][j] and visible:
                        kj = k[b][h // repeats][j]
                        score = scale * sum(q[b][h][t][c] * kj[c] for c in range(dim))
                        scores[j] = softcap * math.tanh(score / softcap) if softcap else score
                if scores:
                    top = max(scores.values())
                    total = sum(math.exp(s - top) for s in scores.values())
                    lse[b, h, t] = top + math.log(total)
                    for j, score in scores.items():
                        weight = math.exp(score - top) / total
                        for c in range(dim):
                            out[b, h, t, c] += weight * v[b][h // repeats][j][c]
    return out, lse


def random_inputs(length, *, batch=1, heads=4, kv_heads=2, dim=8, queries=None, dtype=torch.float64):
    query = torch.randn(batch, heads, queries or length, dim, dtype=torch.float64)
    key, value = (torch.randn(batch, kv_heads, length, dim, dtype=torch.float64) for _ in range(2))
    return tuple(x.to(dtype) for x in (query, key, value))


def random_membership(length, *, groups=4, top_k=1, batch=1):
    order = torch.rand(batch, length, groups).argsort(-1)[..., :top_k]
    return (1 << order).sum(-1)


def assert_same(actual, expected, tolerance):
    for name, got, want in zip(("out", "logsumexp"), actual, expected, strict=True):
        torch.testing.assert_close(
            got.double(), want.double(), rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


def padded(length, batch, side):
    real = torch.ones(batch, length, dtype=torch.bool)
    for b in range(batch):
        hidden = slice(0, 2 * b + 1) if side == "left" else slice(length - 2 * b - 1, length)
        real[b, hidden] = False
    return real


# --- the oracle against its definition


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize(("window", "num_sinks"), [(0, 0), (3, 0), (0, 2), (2, 3), (50, 0), (1, 50)])
def test_reference_equals_a_triple_loop(top_k, window, num_sinks, fresh_seed):
    inputs, membership = random_inputs(11), random_membership(11, top_k=top_k)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "scale": 0.4}
    assert_same(
        reference_attention(*inputs, membership, **settings), loop_attention(*inputs, membership, **settings), 1e-12
    )


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("top_k", [1, 2])
def test_reference_with_padding(side, top_k, fresh_seed):
    inputs, membership = random_inputs(10, batch=2), random_membership(10, top_k=top_k, batch=2)
    real = padded(10, 2, side)
    settings: dict[str, Any] = {"window": 1, "num_sinks": 2, "scale": 0.4}
    actual = reference_attention(*inputs, membership, key_padding=real, **settings)
    assert_same(actual, loop_attention(*inputs, membership, real=real, **settings), 1e-12)


@pytest.mark.parametrize("queries", [1, 4, 9])
def test_reference_with_fewer_queries_than_keys(queries, fresh_seed):
    inputs, membership = random_inputs(10, queries=queries), random_membership(10)
    settings: dict[str, Any] = {"window": 2, "num_sinks": 1, "scale": 0.4}
    assert_same(
        reference_attention(*inputs, membership, **settings), loop_attention(*inputs, membership, **settings), 1e-12
    )


@pytest.mark.parametrize("heads", [(1, 1), (4, 1), (6, 3), (3, 3)])
def test_reference_shares_key_heads(heads, fresh_seed):
    inputs, membership = random_inputs(7, heads=heads[0], kv_heads=heads[1]), random_membership(7)
    settings: dict[str, Any] = {"window": 1, "num_sinks": 0, "scale": 0.4}
    assert_same(
        reference_attention(*inputs, membership, **settings), loop_attention(*inputs, membership, **settings), 1e-12
    )


@pytest.mark.parametrize("softcap", [0.5, 30.0])
def test_reference_with_softcap(softcap, fresh_seed):
    inputs, membership = random_inputs(9), random_membership(9, top_k=2)
    settings: dict[str, Any] = {"window": 1, "num_sinks": 1, "scale": 0.9, "softcap": softcap}
    assert_same(
        reference_attention(*inputs, membership, **settings), loop_attention(*inputs, membership, **settings), 1e-12
    )


# --- the fast backends against the oracle in float64

LENGTHS = [1, 2, 63, 64, 65, 129, 200]
SETTINGS = [(0, 0), (5, 0), (0, 4), (17, 4), (64, 1), (100, 3), (1000, 0), (3, 1000)]


def oracle(inputs, membership, **settings):
    return reference_attention(*(x.double() for x in inputs), membership, **settings)


needs_compiler = pytest.mark.skipif(not fused_available(), reason="no C++ compiler")
FAST = [masked_attention, decomposed_attention, pytest.param(fused_attention, marks=needs_compiler)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("window", "num_sinks"), SETTINGS)
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_decomposed_equals_the_oracle(length, window, num_sinks, top_k, fresh_seed):
    inputs = random_inputs(length, dtype=torch.float32)
    membership = random_membership(length, groups=5, top_k=top_k)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "scale": 0.35}
    assert_same(decomposed_attention(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


@needs_compiler
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("window", "num_sinks"), SETTINGS)
@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("mode", ["by class", "dense"])
def test_fused_equals_the_oracle(length, window, num_sinks, top_k, mode, fresh_seed):
    inputs = random_inputs(length, dtype=torch.float32)
    membership = random_membership(length, groups=5, top_k=top_k)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "scale": 0.35}
    actual = fused_attention(*inputs, membership, mode=mode, **settings)
    assert_same(actual, oracle(inputs, membership, **settings), FP32)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("window", "num_sinks"), SETTINGS)
@pytest.mark.parametrize("top_k", [1, 2])
def test_masked_equals_the_oracle(length, window, num_sinks, top_k, fresh_seed):
    inputs, membership = random_inputs(length, dtype=torch.float32), random_membership(length, top_k=top_k)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "scale": 0.35}
    assert_same(masked_attention(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


@pytest.mark.parametrize("run", FAST)
@pytest.mark.parametrize("heads", [(1, 1), (4, 1), (6, 3)])
@pytest.mark.parametrize("top_k", [1, 2])
def test_fast_backends_share_key_heads_and_take_batches(run, heads, top_k, fresh_seed):
    inputs = random_inputs(70, batch=3, heads=heads[0], kv_heads=heads[1], dtype=torch.float32)
    membership = random_membership(70, batch=3, top_k=top_k)
    settings: dict[str, Any] = {"window": 9, "num_sinks": 2, "scale": 0.35}
    assert_same(run(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


@pytest.mark.parametrize("run", FAST)
@pytest.mark.parametrize("used", [[3], [0, 3], [2, 40], [62]])
def test_empty_groups(run, used, fresh_seed):
    inputs = random_inputs(90, dtype=torch.float32)
    membership = 1 << torch.tensor(used)[torch.randint(len(used), (1, 90))]  # bits beyond 31 as well
    settings: dict[str, Any] = {"window": 9, "num_sinks": 2, "scale": 0.35}
    assert_same(run(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


@pytest.mark.parametrize("run", FAST)
def test_a_group_of_one_token(run, fresh_seed):
    inputs, membership = random_inputs(90, dtype=torch.float32), torch.ones(1, 90, dtype=torch.int64)
    membership[0, 89] = 2
    settings: dict[str, Any] = {"window": 0, "num_sinks": 0, "scale": 0.35}
    out, lse = run(*inputs, membership, **settings)
    assert_same((out, lse), oracle(inputs, membership, **settings), FP32)
    torch.testing.assert_close(out[0, 0, 89], inputs[2][0, 0, 89])  # it sees itself alone


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
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("run", [FAST[0], FAST[2]])
def test_padding(run, side, top_k, softcap, fresh_seed):
    inputs = random_inputs(40, batch=3, dtype=torch.float32)
    membership, real = random_membership(40, top_k=top_k, batch=3), padded(40, 3, side)
    settings: dict[str, Any] = {"window": 3, "num_sinks": 2, "scale": 0.35, "key_padding": real, "softcap": softcap}
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


@pytest.mark.parametrize("block", [1, 7, 32])
@pytest.mark.parametrize("queries", [50, 20])
def test_masked_block_size_changes_nothing(block, queries, monkeypatch, fresh_seed):
    monkeypatch.setattr(masked_module, "BLOCK", block)
    monkeypatch.setattr(masked_module, "SQUARE", block)
    inputs, membership = random_inputs(50, queries=queries, dtype=torch.float32), random_membership(50)
    settings: dict[str, Any] = {"window": 3, "num_sinks": 2, "scale": 0.35}
    assert_same(masked_attention(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


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


@pytest.mark.parametrize("run", FAST)
def test_strided_inputs(run, fresh_seed):
    """Models hand over (B, T, H, D) tensors transposed, not contiguous ones."""
    query, key, value = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in random_inputs(70, dtype=torch.float32))
    membership = random_membership(70)
    settings: dict[str, Any] = {"window": 9, "num_sinks": 2, "scale": 0.35}
    expected = oracle((query, key, value), membership, **settings)
    assert_same(run(query, key, value, membership, **settings), expected, FP32)


# --- merging


def test_merge_of_disjoint_parts_is_one_softmax(fresh_seed):
    scores, values = torch.randn(2, 3, 12, dtype=torch.float64), torch.randn(12, 5, dtype=torch.float64)
    parts = []
    for keys in (slice(0, 2), slice(2, 7), slice(7, 12)):
        part = scores[..., keys]
        parts.append((torch.softmax(part, -1) @ values[keys], torch.logsumexp(part, -1)))
    out, lse = merge(parts)
    assert_same((out, lse), (torch.softmax(scores, -1) @ values, torch.logsumexp(scores, -1)), 1e-12)


def test_merge_ignores_empty_parts(fresh_seed):
    out, lse = torch.randn(2, 3, 5), torch.randn(2, 3)
    empty = (torch.zeros(2, 3, 5), torch.full((2, 3), -INF))
    for parts in ([(out, lse), empty], [empty, (out, lse)], [empty, (out, lse), empty]):
        assert_same(merge(parts), (out, lse), 1e-6)


def test_merge_of_nothing_but_empty_parts_is_zero_without_nan():
    empty = (torch.zeros(1, 2, 5), torch.full((1, 2), -INF))
    out, lse = merge([empty, empty])
    assert (out == 0).all()
    assert (lse == -INF).all()


@pytest.mark.parametrize("shift", [1e4, -1e4])
def test_merge_of_extreme_logsumexps(shift):
    one, two = torch.zeros(1, 1, 2), torch.ones(1, 1, 2)
    out, lse = merge([(one, torch.full((1, 1), shift)), (two, torch.full((1, 1), shift))])
    torch.testing.assert_close(out, torch.full((1, 1, 2), 0.5))
    torch.testing.assert_close(lse, torch.full((1, 1), shift + math.log(2)))


# --- the public op


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


def test_fused_refuses_gradients_but_runs_without_them():
    inputs, membership = random_inputs(20, dtype=torch.float32), random_membership(20)
    inputs[1].requires_grad_()
    with pytest.raises(InputError, match="gradient"):
        focus_attention(*inputs, membership, window=3, backend="fused")


LONG, SHORT = 4096, 256


@pytest.mark.parametrize(
    ("length", "top_k", "window", "changes", "expected"),
    [
        (LONG, 1, 64, {}, "decomposed"),
        (SHORT, 1, 64, {}, "masked"),
        (LONG, 3, 64, {}, "masked"),  # 4 groups: every pair shares one
        (LONG, 1, LONG, {}, "masked"),
        (LONG, 1, 64, {"softcap": 5.0}, "masked"),
        (LONG, 1, 64, {"key_padding": torch.ones(1, LONG, dtype=torch.bool)}, "masked"),
    ],
)
def test_choice_of_backend_without_a_compiler(length, top_k, window, changes, expected, monkeypatch):
    monkeypatch.setattr("focus_runtime.attention.dispatch.fused_available", lambda: False)
    query, membership = torch.empty(1, 1, length, 8), random_membership(length, top_k=top_k)
    assert choose_backend(query, query, membership, window=window, **changes) == expected
    step = torch.empty(1, 1, 1, 8)
    assert choose_backend(step, query, membership, window=window, **changes) == "decode"


@needs_compiler
@pytest.mark.parametrize(
    ("query", "gradient", "expected"),
    [
        (torch.empty(1, 1, LONG, 8), False, "fused"),
        (torch.empty(1, 1, LONG, 8, dtype=torch.bfloat16), False, "fused"),
        (torch.empty(1, 1, LONG, 8), True, "decomposed"),
        (torch.empty(1, 1, LONG, 8, dtype=torch.float64), False, "decomposed"),
        (torch.empty(1, 1, LONG, 12), False, "decomposed"),
        (torch.empty(1, 1, 8, LONG).transpose(2, 3), False, "decomposed"),
        (torch.empty(1, 1, LONG, 8, device="meta"), False, "masked"),
    ],
)
def test_choice_of_backend_with_a_compiler(query, gradient, expected):
    assert choose_backend(query, query, random_membership(LONG), window=64, gradient=gradient) == expected


def test_subsets_of_memberships():
    assert subsets_of([0b011, 0b110]) == [0b001, 0b010, 0b100, 0b011, 0b110]
    assert subsets_of([0, 0b1000]) == [0b1000]
    with pytest.raises(InputError, match="sets of groups"):
        subsets_of([(1 << 20) - 1])


@pytest.mark.parametrize(
    ("membership", "window", "expected"),
    [
        ([1, 1, 1], 0, True),
        ([1, 2, 1], 2, True),
        ([1, 2, 1], 1, False),
        ([3, 5, 9], 0, False),
        ([1, 3, 5], 0, True),
        ([0, 0, 0], 0, False),
    ],
)
def test_covers_everything(membership, window, expected):
    assert covers_everything(torch.tensor([membership]), window, 3) is expected


def good():
    query, key, value = random_inputs(6, dtype=torch.float32)
    return {"query": query, "key": key, "value": value, "membership": random_membership(6), "window": 2}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query", torch.zeros(4, 6, 8)),
        ("key", torch.zeros(2, 6, 8)),
        ("value", torch.zeros(2)),
        ("key", torch.zeros(1, 2, 6, 8, dtype=torch.float64)),
        ("value", torch.zeros(1, 2, 6, 8, dtype=torch.bfloat16)),
        ("value", torch.zeros(1, 2, 5, 8)),
        ("query", torch.zeros(1, 3, 6, 8)),
        ("query", torch.zeros(2, 4, 6, 8)),
        ("query", torch.zeros(1, 4, 6, 9)),
        ("query", torch.zeros(1, 4, 7, 8)),
        ("query", torch.zeros(1, 4, 0, 8)),
        ("membership", torch.zeros(1, 5, dtype=torch.int64)),
        ("membership", torch.zeros(6, dtype=torch.int64)),
        ("membership", torch.zeros(1, 6, dtype=torch.int32)),
        ("membership", torch.zeros(1, 6)),
        ("membership", torch.zeros(1, 6, dtype=torch.int64)),
        ("query", torch.full((1, 4, 6, 8), float("nan"))),
        ("key", torch.full((1, 2, 6, 8), float("nan"))),
        ("value", torch.full((1, 2, 6, 8), float("nan"))),
        ("value", torch.full((1, 2, 6, 8), INF)),
        ("query", None),
        ("query", torch.zeros(1, 4, 6, 8, device="meta")),
        ("query", torch.zeros(1, 4, 6, 8, dtype=torch.float8_e4m3fn)),
        ("membership", [1, 2, 4, 1, 2, 4]),
        ("membership", torch.full((1, 6), -1)),
        ("scale", "x"),
        ("scale", float("nan")),
        ("softcap", 0.0),
        ("softcap", -5.0),
        ("softcap", float("nan")),
        ("window", 2.5),
        ("num_sinks", True),
        ("window", -1),
        ("num_sinks", -1),
        ("key_padding", torch.ones(1, 5, dtype=torch.bool)),
        ("key_padding", torch.ones(1, 6)),
        ("backend", "flash"),
        ("backend", ""),
    ],
)
def test_argument_errors_name_the_argument(name, value):
    with pytest.raises(InputError, match=name) as caught:
        focus_attention(**{**good(), name: value})
    assert type(caught.value) is InputError


def test_integers_are_refused():
    values = {name: x.long() if name in ("query", "key", "value") else x for name, x in good().items()}
    with pytest.raises(InputError, match="query"):
        focus_attention(**values)


def test_no_key_heads_is_refused():
    with pytest.raises(InputError, match="heads"):
        focus_attention(**{**good(), "key": torch.zeros(1, 0, 6, 8), "value": torch.zeros(1, 0, 6, 8)})


@pytest.mark.parametrize(
    "changes",
    [
        {"key_padding": torch.ones(1, 6, dtype=torch.bool)},
        {"softcap": 5.0},
        {"query": torch.zeros(1, 4, 3, 8)},
    ],
)
def test_decomposed_refuses_what_it_cannot_do(changes):
    with pytest.raises(InputError, match="decomposed"):
        focus_attention(**{**good(), **changes, "backend": "decomposed"})


@needs_compiler
def test_fused_refuses_what_it_cannot_do():
    inputs = {name: x.double() if name in ("query", "key", "value") else x for name, x in good().items()}
    with pytest.raises(InputError, match="fused"):
        focus_attention(**inputs, backend="fused")


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("backend", ["reference", "masked", "decomposed", pytest.param("fused", marks=needs_compiler)])
def test_one_bad_number_is_named(name, backend, fresh_seed):
    arguments = good()
    arguments[name][0, 1, 3, 5] = float("nan")
    with pytest.raises(InputError, match=f"{name} holds 1 values"):
        focus_attention(**arguments, backend=backend)


def test_the_cost_models_constants_are_the_fitted_ones():
    fitted = json.loads((ROOT / "benchmarks" / "results" / "costs.json").read_text())["constants"]
    assert {name: getattr(costs, name) for name in fitted} == fitted


@pytest.mark.parametrize("length", [1024, 4096])
def test_costs_rank_groups_by_their_size(length):
    """More groups cost the decomposition less, and more groups a token cost it more."""
    found = {}
    for groups, top_k in ((4, 1), (8, 1), (8, 2)):
        sizes = costs.set_sizes(random_membership(length, groups=groups, top_k=top_k)[0])
        found[groups, top_k] = costs.decomposed_cost(sizes, length, PairRule(64, 4))
    assert found[8, 1] < found[4, 1] < found[8, 2]


def test_too_many_sets_of_groups_are_not_decomposed():
    membership = torch.full((1, 8192), (1 << 20) - 1)
    membership[0, 0] = 1 << 30  # else one group would hold every token
    assert costs.cheapest_without_compiler(membership, PairRule(8)) == "masked"


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


def test_decode_for_many_queries_is_masked_attention(fresh_seed):
    inputs, membership = random_inputs(200, dtype=torch.float32), random_membership(200)
    actual = focus_attention(*inputs, membership, window=5, backend="decode", return_lse=True)
    assert_same(actual, oracle(inputs, membership, window=5, scale=8**-0.5), FP32)
