"""Random inputs of attention tests, the definition as a loop, and comparisons with the float64 oracle."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.attention.fused import fused_available
from tests.runtime.attention.by_keyword import reference_attention

INF = float("inf")


FP32 = 5e-6  # the target of RUNTIME.md for values around 1


def random_inputs(length, *, batch=1, heads=4, kv_heads=2, dim=8, queries=None, dtype=torch.float64):
    query = torch.randn(batch, heads, queries or length, dim, dtype=torch.float64)
    key, value = (torch.randn(batch, kv_heads, length, dim, dtype=torch.float64) for _ in range(2))
    return tuple(x.to(dtype) for x in (query, key, value))


def random_membership(length, *, groups=4, top_k=1, batch=1):
    order = torch.rand(batch, length, groups).argsort(-1)[..., :top_k]
    return (1 << order).sum(-1)


def assert_same(actual, expected, tolerance):
    for name, result, reference in zip(("out", "logsumexp"), actual, expected, strict=True):
        torch.testing.assert_close(
            result.double(),
            reference.double(),
            rtol=tolerance,
            atol=tolerance,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def padded(length, batch, side):
    real = torch.ones(batch, length, dtype=torch.bool)
    for b in range(batch):
        hidden = slice(0, 2 * b + 1) if side == "left" else slice(length - 2 * b - 1, length)
        real[b, hidden] = False
    return real


def oracle(inputs, membership, **settings):
    return reference_attention(*(x.double() for x in inputs), membership, **settings)


needs_compiler = pytest.mark.skipif(not fused_available(), reason="no C++ compiler")


def good():
    query, key, value = random_inputs(6, dtype=torch.float32)
    return {"query": query, "key": key, "value": value, "membership": random_membership(6), "window": 2}
