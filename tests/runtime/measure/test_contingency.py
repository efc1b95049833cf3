"""The measures of two labellings against plain definitions and scikit-learn, and tables of permuted labels."""

from __future__ import annotations

from collections import Counter
from math import log, sqrt

import numpy as np
import pytest
from sklearn import metrics

from focus_runtime.measure.contingency import (
    adjusted_rand,
    balance,
    contingency,
    dominance,
    group_purity,
    information,
    log_odds,
    normalised_information,
    permuted_tables,
    purity,
    shuffled_tables,
)


def labels(generator, count, groups, size):
    return generator.integers(0, groups, (count, size))


def test_contingency_counts_pairs_of_labels(generator):
    rows, columns = labels(generator, 2, 5, 300)
    table = contingency(rows.astype(np.uint8), columns.astype(np.uint8), (5, 6))
    counted = Counter(zip(rows.tolist(), columns.tolist(), strict=True))
    assert table.shape == (5, 6)
    assert all(table[i, j] == counted[i, j] for i in range(5) for j in range(6))


def test_purity_of_a_group_is_the_share_of_the_commonest_class(generator):
    groups, classes = labels(generator, 2, 4, 120)
    purities = group_purity(contingency(groups, classes, (5, 4)))
    for group in range(4):
        inside = classes[groups == group].tolist()
        assert purities[group] == pytest.approx(Counter(inside).most_common(1)[0][1] / len(inside))
    assert np.isnan(purities[4])  # no token has the group


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
    scores = log_odds(counts, prior_size=50.0)
    expected = [[plain_log_odds(counts.tolist(), g, w, 50.0) for w in range(12)] for g in range(4)]
    np.testing.assert_allclose(scores, expected, rtol=1e-9)
    assert not log_odds(np.array([[5, 3], [0, 0]]), prior_size=4.0).any()  # of an empty or the only group


def counted(a, b, shape):
    table = np.zeros(shape)
    np.add.at(table, (a, b), 1)
    return table


@pytest.fixture
def two(fresh_seed):
    generator = np.random.default_rng(fresh_seed)
    groups = generator.integers(0, 5, 400)
    categories = np.where(generator.random(400) < 0.5, groups, generator.integers(0, 7, 400))
    return groups, categories


def test_information_is_that_of_scikit_learn(two):
    groups, categories = two
    measures = information(counted(groups, categories, (5, 7)))
    geometric = metrics.normalized_mutual_info_score(categories, groups, average_method="geometric")
    expected = metrics.homogeneity_completeness_v_measure(categories, groups)
    assert measures["nmi"] == pytest.approx(geometric)
    assert [measures[name] for name in ("homogeneity", "completeness", "v_measure")] == pytest.approx(list(expected))


def test_adjusted_rand_is_that_of_scikit_learn_for_many_tables_at_once(two):
    groups, categories = two
    tables = np.stack([counted(groups, categories, (5, 7)), counted(groups, np.roll(categories, 3), (5, 7))])
    expected = [metrics.adjusted_rand_score(groups, np.roll(categories, step)) for step in (0, 3)]
    assert adjusted_rand(tables).tolist() == pytest.approx(expected)


def test_one_group_and_one_category_have_the_limits_they_should():
    one_group = information(np.array([[3.0, 5.0], [0.0, 0.0]]))
    assert (one_group["nmi"], one_group["homogeneity"], one_group["completeness"]) == (0, 0, 1)
    same = information(np.diag([4.0, 6.0]))
    assert [float(value) for value in same.values()] == pytest.approx([1, 1, 1, 1])
    assert balance(np.array([5.0, 5.0])) == pytest.approx(1)
    assert balance(np.array([10.0, 0.0])) == 0


def test_shuffled_tables_keep_both_margins_and_have_the_mean_of_independence(two):
    counts = counted(*two, (5, 7))
    tables = shuffled_tables(counts, draws=2000, seed=1)
    assert (tables.sum(axis=2) == counts.sum(axis=1)).all()
    assert (tables.sum(axis=1) == counts.sum(axis=0)).all()
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    assert np.abs(tables.mean(axis=0) - expected).max() < 0.5
    assert adjusted_rand(tables).mean() == pytest.approx(0, abs=0.002)


def test_permuted_tables_have_the_distribution_of_shuffled_ones(two):
    """Both keep the margins; the means and spreads of their purity agree."""
    counts = counted(*two, (5, 7))
    tables = np.stack(list(permuted_tables(*two, (5, 7), draws=2000, generator=np.random.default_rng(2))))
    assert (tables.sum(axis=2) == counts.sum(axis=1)).all()
    assert (tables.sum(axis=1) == counts.sum(axis=0)).all()
    drawn, permuted = purity(shuffled_tables(counts, draws=2000, seed=1)), purity(tables)
    assert permuted.mean() == pytest.approx(drawn.mean(), abs=6 * drawn.std() / np.sqrt(2000))
    assert permuted.std() == pytest.approx(drawn.std(), rel=0.15)


def test_normalised_information_is_the_v_measure_but_for_constant_labels(two):
    counts = counted(*two, (5, 7))
    assert normalised_information(counts) == pytest.approx(information(counts)["v_measure"], abs=1e-12)
    constant = np.array([[4.0]])
    assert (normalised_information(constant), information(constant)["v_measure"]) == (0, 1)


def test_purity_is_that_of_its_groups_weighted_by_size(two):
    counts = counted(*two, (5, 7))
    sizes = counts.sum(axis=1)
    assert purity(counts) == pytest.approx((group_purity(counts) * sizes).sum() / sizes.sum())
    assert dominance(sizes) == pytest.approx(sizes.max() / sizes.sum())


@pytest.mark.parametrize(
    "counts", [[[7]], [[4, 3]], [[4], [3]], [[0, 0], [5, 3]], [[0, 5], [0, 3]], [[0, 0], [0, 0]], [[2, 1], [0, 4]]]
)
def test_shuffled_tables_keep_both_margins_with_one_group_or_one_category_too(counts):
    table = np.array(counts)
    drawn = shuffled_tables(table, draws=20)
    assert (drawn >= 0).all()
    assert (drawn.sum(axis=1) == table.sum(axis=0)).all()
    assert (drawn.sum(axis=2) == table.sum(axis=1)).all()
