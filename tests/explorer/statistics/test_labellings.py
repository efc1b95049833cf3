"""The measures of two labellings against scikit-learn, and shuffled tables against what they must keep."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from focus_explorer.statistics import labellings
from focus_explorer.statistics.agreement import best_overlap


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
    found = labellings.information(counted(groups, categories, (5, 7)))
    geometric = metrics.normalized_mutual_info_score(categories, groups, average_method="geometric")
    expected = metrics.homogeneity_completeness_v_measure(categories, groups)
    assert found["nmi"] == pytest.approx(geometric)
    assert [found[name] for name in ("homogeneity", "completeness", "v_measure")] == pytest.approx(list(expected))


def test_adjusted_rand_is_that_of_scikit_learn_for_many_tables_at_once(two):
    groups, categories = two
    tables = np.stack([counted(groups, categories, (5, 7)), counted(groups, np.roll(categories, 3), (5, 7))])
    expected = [metrics.adjusted_rand_score(groups, np.roll(categories, step)) for step in (0, 3)]
    assert labellings.adjusted_rand(tables).tolist() == pytest.approx(expected)


def test_purity_counts_the_commonest_category_of_each_group(two):
    groups, categories = two
    right = sum(np.bincount(categories[groups == group]).max() for group in range(5))
    assert labellings.purity(counted(groups, categories, (5, 7))) == pytest.approx(right / 400)


def test_one_group_and_one_category_have_the_limits_they_should():
    one_group = labellings.information(np.array([[3.0, 5.0], [0.0, 0.0]]))
    assert (one_group["nmi"], one_group["homogeneity"], one_group["completeness"]) == (0, 0, 1)
    same = labellings.information(np.diag([4.0, 6.0]))
    assert [float(value) for value in same.values()] == pytest.approx([1, 1, 1, 1])
    assert labellings.balance(np.array([5.0, 5.0])) == pytest.approx(1)
    assert labellings.balance(np.array([10.0, 0.0])) == 0


def test_shuffled_tables_keep_both_margins_and_have_the_mean_of_independence(two):
    counts = counted(*two, (5, 7))
    tables = labellings.shuffled_tables(counts, draws=2000, seed=1)
    assert (tables.sum(axis=2) == counts.sum(axis=1)).all()
    assert (tables.sum(axis=1) == counts.sum(axis=0)).all()
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    assert np.abs(tables.mean(axis=0) - expected).max() < 0.5
    assert labellings.adjusted_rand(tables).mean() == pytest.approx(0, abs=0.002)


def test_overlap_matches_groups_under_any_names():
    table = np.array([[0.0, 7.0, 1.0], [5.0, 0.0, 0.0], [0.0, 2.0, 5.0]])
    assert best_overlap(table) == pytest.approx(17 / 20)
