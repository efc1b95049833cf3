"""Traits of tokens, and their association with groups, against counting by hand and planted groups."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import fisher_exact

from focus_explorer.statistics.group_names import FEWEST, associations, token_traits

PIECES = ["The", " cat", " sat", ".", "\n", "The", " cat", " ran", ",", " and", " ran", "."] * 6


def flags_of(traits, name):
    return traits.flags[:, traits.names.index(name)]


def test_traits_are_those_of_the_pieces():
    traits = token_traits(PIECES)
    assert flags_of(traits, "piece: cat").tolist() == [piece == " cat" for piece in PIECES]
    assert flags_of(traits, "punctuation").tolist() == [piece in (".", ",") for piece in PIECES]
    assert flags_of(traits, "after_punctuation").tolist() == [False, *(piece in (".", ",") for piece in PIECES[:-1])]
    assert flags_of(traits, "line_start").tolist() == [True, *(piece == "\n" for piece in PIECES[:-1])]
    assert flags_of(traits, "repeated").tolist() == [piece in PIECES[:place] for place, piece in enumerate(PIECES)]
    pairs = list(pairwise(PIECES))
    assert flags_of(traits, "copied").tolist() == [False, *(pair in pairs[:n] for n, pair in enumerate(pairs))]
    assert (flags_of(traits, "new") == ~flags_of(traits, "repeated")).all()
    assert flags_of(traits, "early").sum() == len(PIECES) / 4
    assert all(FEWEST <= traits.flags[:, place].sum() < len(PIECES) for place in range(len(traits.names)))


def test_phi_is_the_correlation_and_shares_are_counts(fresh_seed):
    generator = np.random.default_rng(fresh_seed)
    traits, top = token_traits(PIECES), generator.integers(0, 3, len(PIECES))
    for group, found in enumerate(associations(top, 3, traits)):
        inside = top == group
        assert [one.phi for one in found] == sorted((one.phi for one in found), reverse=True)
        for one in found:
            having = flags_of(traits, one.trait)
            assert one.phi == pytest.approx(np.corrcoef(inside, having)[0, 1], abs=1e-6)
            assert one.share == pytest.approx((inside & having).sum() / inside.sum())
            assert one.base == pytest.approx(having.mean())
            table = [
                [(inside & having).sum(), (inside & ~having).sum()],
                [(~inside & having).sum(), (~inside & ~having).sum()],
            ]
            exact = fisher_exact(table, alternative="greater").pvalue * len(traits.names)
            assert one.p_value == pytest.approx(min(1, exact), rel=1e-6)
            assert one.covered == pytest.approx((inside & having).sum() / having.sum())


def test_groups_without_tokens_or_with_all_have_none():
    traits = token_traits(PIECES)
    everything = np.zeros(len(PIECES), dtype=int)
    assert associations(everything, 2, traits) == [[], []]
    few = everything.copy()
    few[: FEWEST - 1] = 1
    assert associations(few, 2, traits)[1] == []


def test_chance_is_seldom_exceeded(fresh_seed):
    """By the best trait of groups that were drawn without looking at the text, in about 2.5 % of groups or fewer."""
    generator = np.random.default_rng(fresh_seed)
    words = [f" w{number}" for number in generator.zipf(1.4, 1500) % 300]
    traits = token_traits(words)
    best = [
        min(one.p_value for one in found)
        for _ in range(25)
        for found in associations(generator.integers(0, 8, len(words)), 8, traits)
    ]
    assert np.mean(np.array(best) < 0.025) < 0.08


def test_a_text_too_short_for_traits():
    assert token_traits(["a", "b"]).names == ()
    assert associations(np.array([0, 1]), 2, token_traits(["a", "b"])) == [[], []]
