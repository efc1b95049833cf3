"""Every statistic of the Groups tab against its plain definition, on random inputs."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import log, sqrt

import numpy as np
import pytest

from focus_explorer.statistics.group_content import (
    adjusted_rand,
    contingency,
    flags,
    layer_agreement,
    log_odds,
    purity,
    shuffled_agreement,
    shuffled_purity,
)


@pytest.fixture
def generator():
    return np.random.default_rng()  # fresh inputs in every run


def labels(generator, count, groups, size):
    return generator.integers(0, groups, (count, size))


def test_contingency_counts_pairs_of_labels(generator):
    rows, columns = labels(generator, 2, 5, 300)
    found = contingency(rows.astype(np.uint8), columns.astype(np.uint8), (5, 6))
    counted = Counter(zip(rows.tolist(), columns.tolist(), strict=True))
    assert found.shape == (5, 6)
    assert all(found[i, j] == counted[i, j] for i in range(5) for j in range(6))


def test_purity_is_the_share_of_the_commonest_class(generator):
    groups, classes = labels(generator, 2, 4, 120)
    found = purity(contingency(groups, classes, (5, 4)))
    for group in range(4):
        inside = classes[groups == group].tolist()
        assert found[group] == pytest.approx(Counter(inside).most_common(1)[0][1] / len(inside))
    assert np.isnan(found[4])  # no token has the group


def test_shuffled_purity_is_that_of_permuted_assignments(generator):
    size = 200
    groups = generator.choice(4, size, p=[0.6, 0.25, 0.1, 0.05])
    classes = generator.choice(3, size, p=[0.5, 0.3, 0.2])
    groups[:4] = range(4)
    null = shuffled_purity(contingency(groups, classes, (5, 3)), draws=3000)
    permuted = np.array([purity(contingency(generator.permutation(groups), classes, (5, 3)))[:4] for _ in range(3000)])
    spread = permuted.std(axis=0) / sqrt(3000)
    np.testing.assert_allclose(null.mean[:4], permuted.mean(axis=0), atol=float((8 * spread).max()))
    assert ((permuted <= null.high[:4]).mean(axis=0) > 0.96).all()  # purity comes in steps of a token
    assert ((permuted < null.high[:4]).mean(axis=0) < 0.99).all()
    assert np.isnan(null.mean[4])
    assert np.isnan(null.high[4])
    assert (null.high[:4] >= null.mean[:4]).all()


def test_shuffled_purity_repeats_with_its_seed():
    counts = np.array([[9, 4, 1], [3, 8, 6]])
    first, again = shuffled_purity(counts, seed=3), shuffled_purity(counts, seed=3)
    np.testing.assert_array_equal(first.mean, again.mean)
    assert not np.array_equal(first.mean, shuffled_purity(counts, seed=4).mean)


def plain_log_odds(counts, group, word, prior_size):
    """Monroe, Colaresi and Quinn 2008, equations 16, 20 and 22, group against rest."""
    everywhere = [sum(row[w] for row in counts) for w in range(len(counts[0]))]
    total = sum(everywhere)
    alpha = [prior_size * uses / total for uses in everywhere]
    here, size_here = counts[group][word], sum(counts[group])
    rest, size_rest = everywhere[word] - here, total - size_here
    odds_here = (here + alpha[word]) / (size_here + prior_size - here - alpha[word])
    odds_rest = (rest + alpha[word]) / (size_rest + prior_size - rest - alpha[word])
    return (log(odds_here) - log(odds_rest)) / sqrt(1 / (here + alpha[word]) + 1 / (rest + alpha[word]))


def test_log_odds_follows_the_paper(generator):
    counts = generator.integers(0, 30, (4, 12))
    counts[0] += 1  # every piece is used somewhere
    found = log_odds(counts, prior_size=50.0)
    wanted = [[plain_log_odds(counts.tolist(), g, w, 50.0) for w in range(12)] for g in range(4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_log_odds_of_an_empty_or_only_group_is_zero():
    assert not log_odds(np.array([[5, 3], [0, 0]]), prior_size=4.0).any()


def plain_adjusted_rand(first, second):
    """From the pairs of items themselves."""
    both = one = other = pairs = 0
    for i, j in combinations(range(len(first)), 2):
        same_first, same_second = first[i] == first[j], second[i] == second[j]
        both, one, other, pairs = both + (same_first and same_second), one + same_first, other + same_second, pairs + 1
    expected = one * other / pairs
    return (both - expected) / ((one + other) / 2 - expected)


def test_adjusted_rand_counts_pairs(generator):
    for _ in range(5):
        first, second = labels(generator, 2, 4, 40)
        second[:20] = first[:20]
        found = adjusted_rand(contingency(first, second, (4, 4)))
        assert found == pytest.approx(plain_adjusted_rand(first.tolist(), second.tolist()))


def test_adjusted_rand_does_not_care_for_names(generator):
    first = labels(generator, 1, 5, 200)[0]
    renamed = generator.permutation(5)[first]
    assert adjusted_rand(contingency(first, renamed, (5, 5))) == pytest.approx(1)
    assert adjusted_rand(np.array([[7]])) == 1


def test_layer_agreement_is_that_of_every_pair(generator):
    tops = labels(generator, 4, 3, 60).astype(np.uint8)
    found = layer_agreement(tops, 3)
    for i, j in combinations(range(4), 2):
        assert found[i, j] == found[j, i] == pytest.approx(plain_adjusted_rand(tops[i].tolist(), tops[j].tolist()))
    np.testing.assert_array_equal(np.diag(found), 1)


def test_shuffled_layers_do_not_agree(generator):
    same = np.repeat(labels(generator, 1, 4, 2000), 6, axis=0).astype(np.uint8)
    null = shuffled_agreement(same, 4, seed=1)
    assert null.shape == (5,)
    assert np.abs(null).max() < 0.02 < layer_agreement(same, 4).min()
    np.testing.assert_array_equal(null, shuffled_agreement(same, 4, seed=1))


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([25, 25, 25, 25], [[], [], [], []]),
        ([97, 2, 1, 0], [["collapsed"], ["starved"], ["starved"], ["dead"]]),
        ([62, 38, 0, 0], [[], [], ["dead"], ["dead"]]),  # halfway between an even share and all is 62.5 %
        ([63, 37, 0, 0], [["collapsed"], [], ["dead"], ["dead"]]),
        ([10], [[]]),  # a single group cannot collapse
    ],
)
def test_flags(sizes, wanted):
    assert flags(np.array(sizes)) == wanted
