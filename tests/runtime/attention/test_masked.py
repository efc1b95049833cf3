"""Masked attention against the oracle in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from focus_runtime.attention import masked as masked_module
from focus_runtime.attention.flash import causal_sdpa
from focus_runtime.attention.masked import covers_everything
from focus_runtime.mask.rule import Extent
from tests.runtime.attention.by_keyword import (
    masked_attention,
)
from tests.runtime.attention.inputs import (
    FP32,
    LENGTHS,
    SETTINGS,
    assert_same,
    oracle,
    random_inputs,
    random_membership,
)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("window", "num_sinks"), SETTINGS)
@pytest.mark.parametrize("top_k", [1, 2])
def test_masked_equals_the_oracle(length, window, num_sinks, top_k, fresh_seed):
    inputs, membership = random_inputs(length, dtype=torch.float32), random_membership(length, top_k=top_k)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "scale": 0.35}
    assert_same(masked_attention(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


@pytest.mark.parametrize("block", [1, 7, 32])
@pytest.mark.parametrize("queries", [50, 20])
def test_masked_block_size_changes_nothing(block, queries, monkeypatch, fresh_seed):
    monkeypatch.setattr(masked_module, "BLOCK", block)
    monkeypatch.setattr(masked_module, "SQUARE", block)
    inputs, membership = random_inputs(50, queries=queries, dtype=torch.float32), random_membership(50)
    settings: dict[str, Any] = {"window": 3, "num_sinks": 2, "scale": 0.35}
    assert_same(masked_attention(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


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


@pytest.mark.parametrize(
    ("extent", "window", "expected"),
    [
        (Extent(8, 8, True), 3, True),
        (Extent(8, 2, True), 3, False),
        (Extent(1, 1, True), 3, True),
        (Extent(8, 1, True), 99, True),
    ],
)
def test_full_coverage_is_known_without_reading_a_gpu(extent, window, expected):
    """Values of a meta tensor cannot be read."""
    membership = torch.empty(2, 100, dtype=torch.int64, device="meta")
    assert covers_everything(membership, window, 100, extent) is expected


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_causal_attention_of_any_device(kv_heads, fresh_seed):
    query = torch.randn(2, 4, 33, 16, dtype=torch.float64)
    key, value = (torch.randn(2, kv_heads, 33, 16, dtype=torch.float64) for _ in range(2))
    everything = torch.ones(2, 33, dtype=torch.int64)
    expected = oracle((query, key, value), everything, window=0, num_sinks=0, scale=0.3)[0]
    torch.testing.assert_close(causal_sdpa(query, key, value, 0.3), expected, rtol=1e-9, atol=1e-9)
