"""Tokens packed by group for varlen kernels."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.attention.cuda.decomposed import pack
from focus_runtime.mask.dense import group_bits, group_numbers, membership_extent, popcount
from focus_runtime.mask.rule import Extent
from tests.runtime.attention.inputs import random_membership

LONGEST = torch.tensor([(1 << 62) - 1])


def test_popcount_and_extent(fresh_seed):
    membership = torch.randint(0, 1 << 62, (3, 50))
    assert popcount(membership).tolist() == [[x.bit_count() for x in row] for row in membership.tolist()]
    assert popcount(LONGEST).tolist() == [62]
    assert membership_extent(torch.tensor([[1, 6, 1 << 62]])) == Extent(63, 2, False)
    assert membership_extent(random_membership(200, groups=5, top_k=2)) == Extent(5, 2, True)
    assert membership_extent(torch.zeros(1, 4, dtype=torch.int64)) == Extent(1, 1, False)  # no token has a group


def test_group_numbers_and_bits():
    membership = torch.tensor([0b1, 0b1010, 1 << 62, 0, (1 << 62) | 1])
    assert group_numbers(membership, 2).tolist() == [[0, -1], [1, 3], [62, -1], [-1, -1], [0, 62]]
    assert group_bits(membership, 4).int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 1], [0] * 4, [0] * 4, [1, 0, 0, 0]]


@pytest.mark.parametrize("categories", [3, 255, 256, 40000])
def test_pack_sorts_stably_and_finds_its_way_back(categories, fresh_seed):
    category = torch.randint(-1, categories, (300, 2))
    packing = pack(category, categories, uniform=False)
    bounds = packing.cu_lengths.tolist()
    assert packing.cu_lengths.dtype == torch.int32
    for number in range(min(categories, 300)):
        entries = slice(bounds[number], bounds[number + 1])
        expected = [t for t, row in enumerate(category.tolist()) for c in row if c == number]
        assert packing.token[entries].tolist() == expected
    assert bounds[-1] == int((category >= 0).sum())
    for j in range(2):
        assert packing.token[packing.slots[:, j]].tolist() == list(range(300))
        assert (packing.rank[packing.slots[:, j]] == j).all()
    assert torch.equal(packing.held, category >= 0)
