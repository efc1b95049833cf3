"""The public op, its reference, and merging: definitions in float64, and arguments that are refused by name."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.attention import focus_attention
from focus_runtime.attention.reference import merge
from focus_runtime.errors import InputError
from tests.runtime.attention.by_keyword import reference_attention
from tests.runtime.attention.inputs import (
    INF,
    assert_same,
    good,
    needs_compiler,
    padded,
    random_inputs,
    random_membership,
)


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


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ({}, {"window": 0}),
        ({}, {"window": 3, "num_sinks": 0}),
        ({}, {"window": 50, "num_sinks": 0}),
        ({}, {"window": 1, "num_sinks": 50}),
        ({"heads": 6, "kv_heads": 3}, {"window": 2, "num_sinks": 3}),
        ({"queries": 4}, {"window": 2, "num_sinks": 1}),
        ({"queries": 1, "heads": 4, "kv_heads": 1}, {"window": 2, "num_sinks": 1, "softcap": 30.0}),
        ({}, {"window": 1, "num_sinks": 1, "softcap": 0.5}),
        ({"batch": 2}, {"window": 1, "num_sinks": 2, "real": padded(10, 2, "left")}),
        ({"batch": 2}, {"window": 1, "num_sinks": 2, "real": padded(10, 2, "right")}),
    ],
)
def test_reference_equals_a_triple_loop(shape, settings, top_k, fresh_seed):
    settings = {"num_sinks": 0, "scale": 0.4, **settings}
    inputs, membership = random_inputs(10, **shape), random_membership(10, top_k=top_k, batch=shape.get("batch", 1))
    expected = loop_attention(*inputs, membership, **settings)
    actual = reference_attention(*inputs, membership, key_padding=settings.pop("real", None), **settings)
    assert_same(actual, expected, 1e-12)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_lose_no_more_than_their_own_rounding(dtype, softcap, fresh_seed):
    """Softmax in 16 bits had rows that add up to 0.95 to 1.05 and outputs wrong by 1 to 2 %."""
    query, key, value = (x.to(dtype) for x in random_inputs(300))
    membership = random_membership(300, top_k=1)
    settings = {"window": 20, "num_sinks": 2, "scale": 0.5, "softcap": softcap}
    out, lse = reference_attention(query, key, value, membership, **settings)
    exact, exact_lse = reference_attention(query.double(), key.double(), value.double(), membership, **settings)
    ones, _ = reference_attention(query, key, torch.ones_like(value), membership, **settings)
    assert out.dtype == dtype
    assert (ones == 1).all()  # the weights of every row add up to 1 within the dtype
    assert (out.double() - exact).square().mean().sqrt() < 0.003 * exact.square().mean().sqrt()
    assert (lse.double() - exact_lse).abs().max() < 1e-4


def test_autocast_does_not_take_the_softmax_into_sixteen_bits(fresh_seed):
    inputs, membership = random_inputs(80, dtype=torch.float32), random_membership(80, top_k=1)
    plain = reference_attention(*inputs, membership, window=9, scale=0.5)
    with torch.autocast("cpu", torch.bfloat16):
        cast = reference_attention(*inputs, membership, window=9, scale=0.5)
    assert_same(cast, plain, 0.0)


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
        ("query", torch.zeros(1, 4, 6, 8, dtype=torch.int64)),
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


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("backend", ["reference", "masked", "decomposed", pytest.param("fused", marks=needs_compiler)])
def test_one_bad_number_is_named(name, backend, fresh_seed):
    arguments = good()
    arguments[name][0, 1, 3, 5] = float("nan")
    with pytest.raises(InputError, match=f"{name} holds 1 values"):
        focus_attention(**arguments, backend=backend)
