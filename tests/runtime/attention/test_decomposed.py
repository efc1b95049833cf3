"""The decomposition on the CPU against the oracle in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from focus_runtime.attention import decomposed as decomposed_module
from tests.runtime.attention.by_keyword import (
    decomposed_attention,
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
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_decomposed_equals_the_oracle(length, window, num_sinks, top_k, fresh_seed):
    inputs = random_inputs(length, dtype=torch.float32)
    membership = random_membership(length, groups=5, top_k=top_k)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "scale": 0.35}
    assert_same(decomposed_attention(*inputs, membership, **settings), oracle(inputs, membership, **settings), FP32)


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
