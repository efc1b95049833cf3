"""The hard mask against its definition."""

from __future__ import annotations

import torch
from hypothesis import given, settings

from focus_runtime.mask.blocks import count_pairs
from focus_runtime.mask.dense import allowed_pairs
from focus_runtime.mask.rule import PairRule
from tests.runtime.mask.double_loop import cause, memberships, rules


@settings(max_examples=40, deadline=None)
@given(memberships, rules)
def test_allowed_pairs_agree_with_the_definition_and_the_counts(membership, rule):
    bits, position = torch.from_numpy(membership)[None], torch.arange(len(membership))[None]
    allowed = allowed_pairs(bits, bits, position, position, rule)[0]
    for i in range(len(membership)):
        for j in range(len(membership)):
            assert bool(allowed[i, j]) == (j <= i and cause(membership, i, j, rule) != "dropped")
    counted = count_pairs(membership, rule)
    assert int(allowed.sum()) == counted.counts.sum() - counted.total("dropped")


def test_negative_positions_are_before_the_text():
    """Padding before the first token has negative positions; a real token's window is not shortened by it."""
    bits = torch.ones(1, 4, dtype=torch.int64)
    position = torch.tensor([[-2, -1, 0, 1]])
    allowed = allowed_pairs(bits, bits, position, position, PairRule(0))[0]
    assert allowed[3, 2]
    assert not allowed[2, 3]
