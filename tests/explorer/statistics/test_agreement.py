"""Agreement of layers and runs against counting pairs of tokens."""

from __future__ import annotations

import itertools
from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from focus_explorer.statistics.agreement import (
    align,
    best_overlap,
    between_samples,
    layer_agreement,
    layer_agreement_table,
    shuffled_agreement,
)
from focus_explorer.statistics.sample import Groups, Sample
from tests.runtime.measure.test_contingency import labels


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


def test_layer_agreement_is_that_of_every_pair(generator):
    tops = labels(generator, 4, 3, 60).astype(np.uint8)
    agreement = layer_agreement(tops, 3)
    for i, j in combinations(range(4), 2):
        assert agreement[i, j] == agreement[j, i] == pytest.approx(adjusted_rand_score(tops[i], tops[j]))
    np.testing.assert_array_equal(np.diag(agreement), 1)


def test_shuffled_layers_do_not_agree(generator):
    same = np.repeat(labels(generator, 1, 4, 2000), 6, axis=0).astype(np.uint8)
    null = shuffled_agreement(same, 4, seed=1)
    assert null.shape == (5,)
    assert np.abs(null).max() < 0.02 < layer_agreement(same, 4).min()
    np.testing.assert_array_equal(null, shuffled_agreement(same, 4, seed=1))


def test_overlap_matches_groups_under_any_names():
    table = np.array([[0.0, 7.0, 1.0], [5.0, 0.0, 0.0], [0.0, 2.0, 5.0]])
    assert best_overlap(table) == pytest.approx(17 / 20)


def test_layers_agree_with_themselves_and_not_with_others(sample):
    row = layer_agreement_table(sample).to_pylist()[0]
    assert (row["layer"], row["other_layer"]) == (3, 7)
    assert abs(row["adjusted_rand"]) < 0.05
    renamed = Groups(
        sample.focus.tops[:, :].max() - sample.focus.tops,
        *(getattr(sample.focus, name) for name in ("membership", "confidence", "entropy")),
    )
    other = Sample(**{name: getattr(sample, name) for name in Sample.__slots__} | {"focus": renamed})
    for row in between_samples(sample, other).to_pylist():
        assert row["adjusted_rand"] == row["overlap"] == 1
        assert row["low"] == 1
        assert row["overlap_shuffled"] < 0.45
        assert abs(row["shuffled"]) < 0.02
