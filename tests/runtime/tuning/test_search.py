"""The search offers only what it measured, meets its target with the fewest pairs it saw, and can be continued."""

from __future__ import annotations

import numpy as np
import pytest

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import compose
from focus_runtime.errors import ConfigError
from focus_runtime.tuning.meter import BudgetMeter, Measured
from focus_runtime.tuning.search import Progress, Target, candidates, pareto, search
from tests.helpers import build_centroids, build_model, random_ids

OPTIONS = ({"top_k": 2}, {"full": True})


@pytest.fixture(scope="module")
def meter():
    model = build_model(num_hidden_layers=3)
    focus = compose(model, build_centroids(model))
    yield BudgetMeter(focus, {"a": random_ids(48, batch=2, seed=1), "b": random_ids(48, seed=2)})
    focus.detach()


class Planted:
    """A meter whose heads have known gains: every exception wins its own, whatever the others do."""

    def __init__(self, gains):
        self.gains, self.base = gains, Measured((), np.array([1.0, 1.0]), 0.2)

    def measure(self, budget):
        budget = tuple(sorted(budget, key=lambda entry: (entry.layer, entry.head)))
        gain = sum(self.gains[entry.layer, entry.head] for entry in budget)
        return Measured(budget, self.base.nll - gain, 0.2 + 0.01 * len(budget))

    def excess(self, measured):
        return {"a": measured.nll[0] - 0.5}


def test_candidates_are_every_option_of_every_head():
    found = candidates((1, 4), 2, OPTIONS)
    assert len(found) == 8
    assert HeadException(layer=4, head=1, full=True) in found


def test_the_best_heads_are_taken_first_and_no_more_than_needed():
    gains = {(layer, head): 0.001 for layer in range(6) for head in range(4)} | {(3, 1): 0.2, (5, 0): 0.15, (0, 2): 0.1}
    planted = Planted(gains)
    result = search(planted, candidates(range(6), 4, OPTIONS[1:]), Target(loss=0.06), Progress())
    assert {(entry.layer, entry.head) for entry in result.chosen.budget} == {(3, 1), (5, 0), (0, 2)}
    places = [(change.exception.layer, change.exception.head) for change in result.changes[:3]]
    assert places == [(3, 1), (5, 0), (0, 2)]
    assert result.chosen is result.closest or planted.excess(result.chosen)["a"] <= 0.06


@pytest.mark.parametrize("pairs", [0.2101, 0.2501, 0.3301])
def test_a_share_of_pairs_is_used_up_and_not_passed(pairs):
    gains = {(layer, head): 0.01 * (layer + 1) for layer in range(5) for head in range(4)}
    result = search(Planted(gains), candidates(range(5), 4, OPTIONS[1:]), Target(pairs=pairs), Progress())
    assert result.chosen.retained_pairs == pytest.approx(pairs, abs=2e-4)


def test_changes_that_lose_are_never_tried_together():
    gains = {(0, 0): 0.1, (0, 1): -0.3, (1, 0): 0.2, (1, 1): -0.1}
    result = search(Planted(gains), candidates(range(2), 2, OPTIONS[1:]), Target(loss=0.0), Progress())
    assert result.chosen is None
    assert {(entry.layer, entry.head) for entry in result.closest.budget} == {(0, 0), (1, 0)}


def test_on_a_model_every_point_was_measured_and_the_target_is_met(meter):
    target = Target(pairs=(meter.base.retained_pairs + 1) / 2)
    result = search(meter, candidates(range(3), 2, OPTIONS), target, Progress())
    assert result.chosen is not None
    assert meter.base.retained_pairs <= result.chosen.retained_pairs <= target.pairs
    assert result.chosen.nll.mean() == min(
        point.nll.mean() for point in result.points if point.retained_pairs <= target.pairs
    )
    again = meter.measure(result.chosen.budget)
    np.testing.assert_array_equal(again.nll, result.chosen.nll)
    assert all(point.retained_pairs >= meter.base.retained_pairs for point in result.points)
    places = [(entry.layer, entry.head) for entry in result.chosen.budget]
    assert len(places) == len(set(places))


def test_a_stopped_search_goes_on_where_it_was(meter):
    class StoppedError(Exception):
        pass

    progress, calls = Progress(), []

    def stop(done, total, measured):
        if done == 5:
            raise StoppedError

    progress.on_step = stop
    changes, target = candidates(range(3), 2, OPTIONS), Target(loss=0.0)
    with pytest.raises(StoppedError):
        search(meter, changes, target, progress)
    assert len(progress.known) == 5
    before = dict(progress.known)
    progress.on_step = lambda done, total, measured: calls.append((done, total))
    result = search(meter, changes, target, progress)
    assert all(progress.known[budget] is measured for budget, measured in before.items())
    whole = search(meter, changes, target, Progress())
    assert [point.budget for point in whole.points] == [point.budget for point in result.points]
    assert [done for done, _ in calls] == list(range(1, len(calls) + 1))
    assert all(done <= total for done, total in calls)


def test_pareto_drops_what_costs_more_and_wins_nothing():
    points = [Measured((), np.array([loss]), pairs) for loss, pairs in ((2.0, 0.1), (1.0, 0.2), (1.5, 0.3), (0.5, 0.4))]
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
