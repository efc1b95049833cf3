"""Which backend runs a call, and what a backend refuses."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.attention import choose_backend, focus_attention
from focus_runtime.errors import InputError
from tests.runtime.attention.inputs import (
    FP32,
    assert_same,
    good,
    needs_compiler,
    oracle,
    random_inputs,
    random_membership,
)

LONG, SHORT = 4096, 256


def test_fused_refuses_gradients_but_runs_without_them():
    inputs, membership = random_inputs(20, dtype=torch.float32), random_membership(20)
    inputs[1].requires_grad_()
    with pytest.raises(InputError, match="gradient"):
        focus_attention(*inputs, membership, window=3, backend="fused")


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
    monkeypatch.setattr("focus_runtime.attention.dispatch.fused_runs", lambda *_: False)
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


def test_decode_for_many_queries_is_masked_attention(fresh_seed):
    inputs, membership = random_inputs(200, dtype=torch.float32), random_membership(200)
    actual = focus_attention(*inputs, membership, window=5, backend="decode", return_lse=True)
    assert_same(actual, oracle(inputs, membership, window=5, scale=8**-0.5), FP32)
