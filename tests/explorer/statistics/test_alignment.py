"""Groups of two runs matched with each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from focus_explorer.statistics.agreement import align
from focus_runtime.measure.contingency import adjusted_rand, contingency


def test_groups_are_matched_so_that_most_tokens_agree(fresh_seed):
    rng = np.random.default_rng(fresh_seed)
    for sizes in ((4, 4), (3, 5), (5, 3)):
        first, second = (rng.integers(0, size, 60) for size in sizes)
        alignment = align(first, second, *sizes)
        small, large = sorted(sizes)
        best = 0
        for chosen in itertools.permutations(range(large), small):
            pairs = set(enumerate(chosen)) if sizes[0] <= sizes[1] else {(c, i) for i, c in enumerate(chosen)}
            best = max(best, sum((a, b) in pairs for a, b in zip(first.tolist(), second.tolist(), strict=True)))
        assert alignment.overlap == pytest.approx(best / 60)
        named = np.array(alignment.names)[second]
        assert (named == first).mean() == pytest.approx(alignment.overlap)


def test_rand_index_counts_pairs_of_tokens(fresh_seed):
    rng = np.random.default_rng(fresh_seed)
    first, second = rng.integers(0, 3, 40), rng.integers(0, 4, 40)
    pairs = list(itertools.combinations(range(40), 2))
    a = [first[i] == first[j] for i, j in pairs]
    b = [second[i] == second[j] for i, j in pairs]
    both, random_both = sum(x and y for x, y in zip(a, b, strict=True)), sum(a) * sum(b) / len(pairs)
    expected = (both - random_both) / ((sum(a) + sum(b)) / 2 - random_both)
    assert adjusted_rand(contingency(first, second, (3, 4))) == pytest.approx(expected)
    assert adjusted_rand(contingency(first, (first + 1) % 3, (3, 3))) == pytest.approx(1)
    assert adjusted_rand(contingency(first * 0, first * 0, (1, 1))) == 1
