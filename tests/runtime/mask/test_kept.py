"""Kept pairs one by one against a double loop over the definition, and their memory on a long text."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from focus_runtime.mask import counts as kept
from focus_runtime.mask.counts import count_pairs, kept_pairs
from focus_runtime.mask.rule import CAUSES, PairRule
from tests.runtime.mask.double_loop import cause, draw


@pytest.mark.parametrize("cells", [1, 100, 1 << 22])
@pytest.mark.parametrize("groups", [3, 20, 40])
def test_every_kept_pair_has_its_cause(monkeypatch, fresh_seed, cells, groups):
    monkeypatch.setattr(kept, "CELLS_AT_ONCE", cells)
    membership, generator = draw(fresh_seed, 53, groups=groups)
    membership &= generator.integers(0, 1 << groups, 53) & generator.integers(0, 1 << groups, 53)  # fewer shared groups
    for rule in (
        PairRule(4, 2),
        PairRule(0),
        PairRule(60, 3),
        PairRule(5, 3, 11),
        PairRule(20, 9, 7),
        PairRule(2, 1, 40, (9, 30)),
    ):
        for rows in ((0, 53), (17, 40), (52, 53)):
            expected = {
                (i, j): cause(membership, i, j, rule)
                for i in range(*rows)
                for j in range(i + 1)
                if cause(membership, i, j, rule) != "dropped"
            }
            actual = {}
            for piece in kept_pairs(membership, rule, rows):
                columns = (piece.query.tolist(), piece.key.tolist(), piece.cause.tolist())
                actual |= {(i, j): CAUSES[code] for i, j, code in zip(*columns, strict=True)}
            assert list(actual) == sorted(expected)
            assert actual == expected


@pytest.mark.slow
def test_a_long_text_needs_little_memory(fresh_seed):
    """100,000 tokens; the whole mask would have 5e9 cells."""
    membership, rule = draw(fresh_seed, 100_000, groups=4)[0], PairRule(128, 4)
    tracemalloc.start()
    pairs = sum(piece.key.size for piece in kept_pairs(membership, rule, (99_900, 100_000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pairs > 100 * 30_000
    assert peak < 200e6


@pytest.mark.parametrize("sliding", [None, 300])
def test_no_piece_has_more_cells_than_are_looked_at_at_once(monkeypatch, fresh_seed, sliding):
    """Also at the beginning of the text, whose rows are short."""
    monkeypatch.setattr(kept, "CELLS_AT_ONCE", 10_000)
    membership = np.ones(2000, dtype=np.int64)  # everything is kept
    pieces = list(kept_pairs(membership, PairRule(2, 0, sliding), (0, 2000)))
    cells = [(p.query[-1] + 1 - p.query[0]) * (p.key.max() + 1 - p.key.min()) for p in pieces]
    assert max(cells) <= 10_000
    assert len(pieces) < 1.5 * sum(cells) / 10_000 + 3


def test_the_counts_are_those_of_the_blocks(fresh_seed):
    membership = draw(fresh_seed, 700, groups=6)[0]
    rule = PairRule(30, 4, 200)
    pieces = list(kept_pairs(membership, rule, (0, 700)))
    counts = np.bincount(np.concatenate([piece.cause for piece in pieces]), minlength=len(CAUSES))
    stored = count_pairs(membership, rule)
    assert counts.tolist() == [stored.total(name) if name != "dropped" else 0 for name in CAUSES]
