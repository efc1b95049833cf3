"""Shares of categories in groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import hypergeom

from focus_explorer.statistics.groups import categories_table
from focus_explorer.statistics.resample import hypergeometric_p_values
from focus_explorer.statistics.sample import Scheme
from tests.explorer.statistics.conftest import TOKENS, groups


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
