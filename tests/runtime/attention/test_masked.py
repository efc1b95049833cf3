"""Masked attention against the oracle in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from focus_runtime.attention import masked as masked_module
from focus_runtime.attention.masked import covers_everything
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
