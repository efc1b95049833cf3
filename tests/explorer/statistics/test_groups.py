"""Groups: marks of their size, purity, and what stands out in them."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from scipy.stats import hypergeom

from focus_explorer.statistics.groups import (
    categories_table,
    characteristic_table,
    group_flags,
    group_purity_estimates,
    shuffled_group_purity,
)
from focus_explorer.statistics.resample import Resampler, hypergeometric_p_values
from focus_explorer.statistics.sample import Scheme
from focus_runtime.measure.contingency import contingency, group_purity
from tests.explorer.statistics.conftest import TOKENS, groups


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([25, 25, 25, 25], [[], [], [], []]),
        ([97, 2, 1, 0], [["collapsed"], ["starved"], ["starved"], ["dead"]]),
        ([62, 38, 0, 0], [[], [], ["dead"], ["dead"]]),  # halfway between an even share and all is 62.5 %
        ([63, 37, 0, 0], [["collapsed"], [], ["dead"], ["dead"]]),
        ([10], [[]]),  # a single group cannot collapse
    ],
)
def test_group_flags(sizes, expected):
    assert group_flags(np.array(sizes)) == expected


def test_shuffled_purity_is_that_of_permuted_assignments(generator):
    size = 200
    groups = generator.choice(4, size, p=[0.6, 0.25, 0.1, 0.05])
    classes = generator.choice(3, size, p=[0.5, 0.3, 0.2])
    groups[:4] = range(4)
    mean, high = shuffled_group_purity(contingency(groups, classes, (5, 3)), draws=3000)
    permuted = np.array(
        [group_purity(contingency(generator.permutation(groups), classes, (5, 3)))[:4] for _ in range(3000)]
    )
    spread = permuted.std(axis=0) / sqrt(3000)
    np.testing.assert_allclose(mean[:4], permuted.mean(axis=0), atol=float((8 * spread).max()))
    assert ((permuted <= high[:4]).mean(axis=0) > 0.96).all()  # purity comes in steps of a token
    assert ((permuted < high[:4]).mean(axis=0) < 0.99).all()
    assert np.isnan(mean[4])
    assert np.isnan(high[4])
    assert (high[:4] >= mean[:4]).all()


def test_a_groups_purity_has_the_interval_of_its_resampled_shares(generator):
    """200 sentences of 10 tokens; a group without tokens has neither value nor interval."""
    groups, classes = generator.integers(0, 3, 2000), generator.integers(0, 3, 2000)
    classes[groups == 0] = np.where(generator.random((groups == 0).sum()) < 0.8, 1, classes[groups == 0])
    resampler = Resampler(np.arange(2000) // 10, resamples=500, seed=1)
    by_unit = resampler.tally(groups * 5 + classes, 4 * 5)
    counts, drawn = by_unit.sum(axis=0).reshape(4, 5), resampler.draw(by_unit).reshape(-1, 4, 5)
    used = np.flatnonzero(counts.sum(axis=0))
    estimates = group_purity_estimates(
        counts, drawn[:, :, used], used, counts.argmax(axis=1), np.array([200, 200, 200, 0])
    )
    np.testing.assert_allclose([one.value for one in estimates], group_purity(counts))
    for estimate in estimates[:3]:
        low, high = estimate.interval(resampler.count)
        assert low < estimate.value < high
        assert high - low < 0.15
    assert estimates[3].interval(resampler.count) == (None, None)


def test_pieces_that_make_a_group(sample):
    pieces = [row for row in characteristic_table(sample).to_pylist() if row["kind"] == "characteristic"]
    assert {row["group"] for row in pieces if row["layer"] == 3} == set("ABCD")
    assert all(row["q_value"] <= 0.05 and row["z"] > 0 and row["uses"] >= 2 for row in pieces)


def test_categories_that_make_a_group(sample):
    rows = [row for row in categories_table(sample).to_pylist() if row["layer"] == 3 and row["share"] == 1]
    assert len(rows) == 4
    assert all(row["z"] > 10 and row["q_value"] < 1e-6 and row["low"] == row["high"] == 1 for row in rows)


def test_rare_categories_of_groups_at_random_are_rarely_significant(sample):
    names, found = [f"tag {number:02}" for number in range(31)], 0
    codes = np.append(np.arange(30).repeat(2), np.full(TOKENS - 60, 30)).astype(np.uint8)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        top = rng.permutation(np.arange(TOKENS) % 16)
        made = replace(
            sample,
            num_groups=16,
            layers=[3],
            parts=sample.parts[:1],
            focus=groups(top[None], rng),
            random=None,
            schemes={"pos": Scheme(names, codes)},
        )
        found += any(row["q_value"] <= 0.05 for row in categories_table(made).to_pylist())
    assert found <= 2


def test_p_values_are_those_of_the_hypergeometric_distribution():
    counts = np.array([[3.0, 0.0, 7.0, 0.0], [1.0, 2.0, 20.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    values = hypergeometric_p_values(counts)
    for group, category in np.ndindex(counts.shape):
        chance = hypergeom(33, counts[:, category].sum(), counts[group].sum()).pmf(np.arange(34))
        count = int(counts[group, category])
        expected = 2 * min(chance[: count + 1].sum(), chance[count:].sum())
        assert values[group, category] == pytest.approx(min(1.0, expected))


def test_groups_and_categories_without_tokens_are_no_comparisons(sample):
    shown = categories_table(sample).to_pylist()
    scheme, focus = sample.schemes["pos"], sample.focus
    unused = {"pos": Scheme([*scheme.names, *(f"none {number}" for number in range(20))], scheme.codes)}
    made = replace(sample, num_groups=12, schemes=unused, focus=focus, random=None)
    rows = [row for row in categories_table(made).to_pylist() if not row["category"].startswith("none")]
    assert [row["q_value"] for row in rows] == pytest.approx([row["q_value"] for row in shown])
