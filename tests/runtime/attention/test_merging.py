"""Attention over disjoint key sets, merged by logsumexp."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.attention.reference import merge
from tests.runtime.attention.inputs import (
    INF,
    assert_same,
)


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
