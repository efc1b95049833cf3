"""Budgets that follow from estimates: the best for their pairs where heads do not interact, settled where they do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from focus_runtime.budget import HeadCounts, HeadSetting
from focus_runtime.fit.budget_meter import Costs
from focus_runtime.fit.budget_search import Proposals

FULL = HeadSetting(0, 0, full=True)
SETTINGS = (FULL, HeadSetting(1, 8), HeadSetting(0, 4))


def planted(changes, pairs, counts=None, by_query=True):
    """Estimates from what settings change in the losses of tokens, (L, H, S, T)."""
    changes = np.asarray(changes, dtype=np.float32)
    layers, heads, options, tokens = changes.shape
    flat = changes.reshape(-1, tokens)
    products = (flat @ flat.T / tokens).reshape(layers, heads, options, layers, heads, options)
    counts = counts or HeadCounts(heads, heads)
    pairs = np.asarray(pairs, dtype=float)
    return Costs(tuple(range(layers)), counts, by_query, SETTINGS[:options], products, pairs, 1)


def drawn(seed, layers=2, heads=3, tokens=50):
    """Changes without interaction: no two heads change the same token."""
    generator = np.random.default_rng(seed)
    changes = np.zeros((layers, heads, 3, layers * heads * tokens))
    for place, (layer, head) in enumerate(itertools.product(range(layers), range(heads))):
        own = slice(place * tokens, (place + 1) * tokens)
        changes[layer, head, 1, own] = generator.normal(0, generator.uniform(0.1, 1), tokens)
        changes[layer, head, 2, own] = generator.normal(0, generator.uniform(0.1, 3), tokens)
    return changes


def every_choice(costs):
    """Pairs kept and divergence of all budgets."""
    layers, heads, options = costs.products.shape[:3]
    units = list(itertools.product(range(layers), range(heads)))
    for choice in itertools.product(range(options), repeat=len(units)):
        rows = [(*unit, option) for unit, option in zip(units, choice, strict=True)]
        cost = sum(costs.products[one + other] for one, other in itertools.product(rows, rows)) / 2
        yield np.mean([costs.pairs[layer, option] for layer, _, option in rows]), cost, choice


def test_without_interaction_nothing_is_better_for_as_many_pairs(fresh_seed):
    costs = planted(drawn(fresh_seed), [[1, 0.4, 0.2], [1, 0.5, 0.2]])
    proposals, known = Proposals(costs), list(every_choice(costs))
    for pairs in (0.2, 0.31, 0.5, 0.77, 1.0):
        proposal = proposals.within(pairs)
        assert proposal.pairs <= pairs + 1e-9
        kept = [(share, cost) for share, cost, _ in known if share <= proposal.pairs + 1e-9]
        assert proposal.divergence == pytest.approx(min(cost for _, cost in kept), rel=1e-4, abs=1e-7)


def test_with_interaction_no_head_alone_does_better(fresh_seed):
    generator = np.random.default_rng(fresh_seed)
    changes = generator.normal(0, 1, (2, 3, 3, 40)) * np.array([0, 1, 2])[:, None]
    costs = planted(changes, [[1, 0.4, 0.2], [1, 0.5, 0.2]])
    proposals = Proposals(costs)
    for pairs in (0.3, 0.6, 0.9):
        proposal = proposals.within(pairs)
        assert proposal.pairs <= pairs
        units = list(itertools.product(range(2), range(3)))
        chosen = {unit: SETTINGS.index(proposal.settings[unit]) for unit in units}

        def cost(choice, units=units):
            total = sum(changes[unit][choice[unit]] for unit in units)
            return float((total**2).mean() / 2)

        assert proposal.divergence == pytest.approx(cost(chosen), rel=1e-4)
        kept = sum(costs.pairs[layer, option] for (layer, _), option in chosen.items())
        for unit, option in itertools.product(units, range(3)):
            other = chosen | {unit: option}
            fewer = sum(costs.pairs[layer, place] for (layer, _), place in other.items()) <= kept + 1e-9
            assert not fewer or cost(other) >= proposal.divergence * (1 - 1e-6)  # products are fp32


def test_errors_that_cancel_cost_nothing():
    change = np.random.default_rng(0).normal(0, 1, 60)
    changes = np.zeros((1, 3, 2, 60))
    changes[0, 0, 1], changes[0, 1, 1] = change, -change
    changes[0, 2, 1] = 0.3 * np.random.default_rng(1).normal(0, 1, 60)
    proposal = Proposals(planted(changes, [[1, 0.1]])).within(0.41)
    assert [proposal.settings[0, head].full for head in range(3)] == [False, False, True]
    assert proposal.divergence == pytest.approx(0, abs=1e-6)


def test_the_ends():
    proposals = Proposals(planted(drawn(3), [[1, 0.4, 0.2], [1, 0.5, 0.2]]))
    assert proposals.fewest_pairs == pytest.approx(0.2)
    least = proposals.within(0.05)  # no budget keeps as few
    assert least.pairs == pytest.approx(0.2)
    everything = proposals.within(1.0)
    assert everything.divergence == pytest.approx(0, abs=1e-6)
    assert all(setting.full for setting in everything.settings.values())


def test_key_heads_stand_for_their_query_heads():
    costs = planted(drawn(4, heads=2), [[1, 0.4, 0.2]] * 2, HeadCounts(2, 6), by_query=False)
    proposal = Proposals(costs).within(0.5)
    assert sorted(proposal.settings) == list(itertools.product(range(2), range(6)))
    for layer, head in itertools.product(range(2), range(6)):
        assert proposal.settings[layer, head] == proposal.settings[layer, head - head % 3]
