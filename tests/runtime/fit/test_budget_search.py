"""Budgets are proposed from estimates; the search offers only what it measured, meets its target, and continues."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import pytest

from focus_runtime.budget import HeadCounts, HeadSetting, to_budget
from focus_runtime.composition.attach import compose
from focus_runtime.errors import ConfigError
from focus_runtime.fit.budget_meter import BudgetMeter, Costs, Measured
from focus_runtime.fit.budget_search import FINE, Progress, Proposals, Target, pareto, search
from tests.helpers import build_centroids, build_model, random_ids

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


USUAL = HeadSetting(1, 8)
CHOICES = (HeadSetting(2, 8), HeadSetting(1, 2), FULL)


@pytest.fixture(scope="module")
def meter():
    model = build_model(num_hidden_layers=3)
    focus = compose(model, build_centroids(model), window=8)
    yield BudgetMeter(focus, {"a": random_ids(48, batch=2, seed=1), "b": random_ids(48, seed=2)})
    focus.detach()


class Planted:
    """A meter whose key heads have known gains by full attention; estimates see them `factor` times too large."""

    domains = ("a", "a")
    usual = USUAL

    def __init__(self, gains, factor=1.5):
        self.gains, self.factor = np.array(gains, dtype=float), factor
        self.base = Measured((), np.array([1.0, 1.0]), 1.0, 0.2)

    def measure(self, budget):
        taken = places(budget)
        gain = sum(self.gains[place] for place in taken)
        nll = self.base.nll - gain
        return Measured(tuple(budget), nll, nll.mean(), 0.2 + 0.8 * len(taken) / self.gains.size)

    def costs(self, settings, on_sequence, start=None, *, by_query):
        layers, heads = self.gains.shape
        products = np.zeros((layers, heads, len(settings), layers, heads, len(settings)), dtype=np.float32)
        for layer, head, place in itertools.product(range(layers), range(heads), range(len(settings))):
            cost = 0.0 if settings[place].full else 2 * self.factor * self.gains[layer, head]
            products[layer, head, place, layer, head, place] = cost
        pairs = np.array([[1.0 if setting.full else 0.2 for setting in settings]] * layers)
        found = Costs(tuple(range(layers)), HeadCounts(heads, heads), by_query, tuple(settings), products, pairs, 2)
        on_sequence(found)
        return found

    def excess(self, measured):
        return {"a": measured.nll[0] - 0.5}


def places(budget):
    return {(entry.layer, entry.head) for entry in budget if entry.full}


def test_the_best_heads_are_taken_first_and_no_more_than_needed():
    gains = np.full((6, 4), 0.001)
    gains[3, 1], gains[5, 0], gains[0, 2] = 0.2, 0.15, 0.1
    result = search(Planted(gains), [FULL], Target(loss=0.06), Progress())
    assert places(result.chosen.budget) == {(3, 1), (5, 0), (0, 2)}
    assert result.closest is result.chosen
    assert result.estimated[result.chosen.budget] == pytest.approx(1.5 * 0.001 * 21)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [0.241, 0.99])
def test_a_share_of_pairs_is_used_up_and_not_passed(pairs):
    gains = 0.01 * (np.arange(5)[:, None] + np.linspace(1, 1.5, 40))
    result = search(Planted(gains), [FULL], Target(pairs=pairs), Progress())
    assert result.chosen.retained_pairs == pytest.approx(pairs, abs=FINE + 0.8 / gains.size)
    assert result.chosen.retained_pairs <= pairs


@pytest.mark.slow
def test_estimates_of_pairs_that_are_off_do_not_matter():
    """Budgets that keep more than was estimated are asked for with fewer pairs."""

    class Off(Planted):
        def measure(self, budget):
            measured = super().measure(budget)
            return dataclasses.replace(measured, retained_pairs=measured.retained_pairs * 1.1)

    gains = 0.01 * (np.arange(5)[:, None] + np.linspace(1, 1.5, 40))
    result = search(Off(gains), [FULL], Target(pairs=0.5), Progress())
    assert result.chosen.retained_pairs == pytest.approx(0.5, abs=FINE + 0.9 / gains.size)
    assert result.chosen.retained_pairs <= 0.5


def test_the_budget_that_groups_were_trained_under_is_measured_and_offered_where_it_is_best():
    """The estimates do not know that one place gains far more together with another."""
    own = to_budget({(0, 0): USUAL, (0, 1): FULL, (1, 0): FULL, (1, 1): USUAL}, USUAL)

    class Trained(Planted):
        def measure(self, budget):
            measured = super().measure(budget)
            bonus = 0.3 if tuple(budget) == own else 0.0
            return dataclasses.replace(measured, nll=measured.nll - bonus, loss=measured.loss - bonus)

    gains = [[0.2, 0.01], [0.01, 0.1]]
    target = Target(pairs=0.65)
    without = search(Trained(gains), [FULL], target, Progress())
    assert places(without.chosen.budget) == {(0, 0), (1, 1)}
    result = search(Trained(gains), [FULL], target, Progress(), own=own)
    assert result.chosen.budget == own
    assert {point.budget for point in result.points} == {own, *(point.budget for point in without.points)}
    below = search(Trained(gains), [FULL], Target(pairs=0.45), Progress(), own=own)
    assert places(below.chosen.budget) == {(0, 0)}  # its own keeps more than may be kept


def test_a_target_below_every_budget_is_said():
    result = search(Planted([[0.1, 0.2]]), [FULL], Target(pairs=0.1), Progress())
    assert result.chosen is None
    assert result.closest.retained_pairs == pytest.approx(0.2)


@functools.cache
def searched(meter):
    """A target, what a search on a model found for it, and its steps."""
    target, progress, calls = Target(pairs=(meter.base.retained_pairs + 1) / 2), Progress(), []
    progress.on_step = lambda done, total: calls.append((done, total))
    return target, search(meter, CHOICES, target, progress), calls


@pytest.mark.slow
def test_on_a_model_every_point_was_measured_and_the_target_is_met(meter):
    target, result, calls = searched(meter)
    assert result.chosen is not None
    assert result.chosen.retained_pairs <= target.pairs
    assert result.chosen.loss == min(point.loss for point in result.points if point.retained_pairs <= target.pairs)
    for point in result.points:
        np.testing.assert_array_equal(meter.measure(point.budget).nll, point.nll)
    assert min(point.retained_pairs for point in result.points) < meter.base.retained_pairs
    assert any(entry.query_head is not None for point in result.points for entry in point.budget)
    assert any(entry.head is not None for point in result.points for entry in point.budget)
    assert set(result.estimated) == {point.budget for point in result.points} - {meter.base.budget}
    assert [done for done, _ in calls] == list(range(1, len(calls) + 1))
    assert all(done <= total for done, total in calls)


@pytest.mark.slow
def test_a_stopped_search_goes_on_where_it_was(meter):
    class StoppedError(Exception):
        pass

    progress = Progress()

    def stop(done, total):
        if done == 7:
            raise StoppedError

    progress.on_step = stop
    target, whole, _ = searched(meter)
    with pytest.raises(StoppedError):
        search(meter, CHOICES, target, progress)
    known, costs = dict(progress.known), progress.costs
    assert known
    assert costs.sequences == 3
    progress.on_step = lambda done, total: None
    result = search(meter, CHOICES, target, progress)
    assert all(progress.known[budget] is measured for budget, measured in known.items())
    assert progress.costs is costs
    assert [point.budget for point in whole.points] == [point.budget for point in result.points]


def test_pareto_drops_what_costs_more_and_wins_nothing():
    figures = ((2.0, 0.1), (1.0, 0.2), (1.5, 0.3), (0.5, 0.4))
    points = [Measured((), np.array([loss]), loss, pairs) for loss, pairs in figures]
    assert [point.retained_pairs for point in pareto(reversed(points))] == [0.1, 0.2, 0.4]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({}, "a loss and a share of pairs, or none"),
        ({"loss": 0.1, "pairs": 0.5}, "a loss and a share of pairs, or none"),
        ({"loss": -0.1}, "target loss is -0.1"),
        ({"loss": float("nan")}, "target loss is nan"),
        ({"pairs": 0}, "target share of pairs is 0"),
        ({"pairs": 1.5}, "target share of pairs is 1.5"),
    ],
)
def test_a_target_that_makes_no_sense(target, words):
    with pytest.raises(ConfigError, match=words):
        Target(**target)
