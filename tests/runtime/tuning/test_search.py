"""The search offers only what it measured, meets its target with the fewest pairs it saw, and can be continued."""

from __future__ import annotations

import numpy as np
import pytest

from focus_runtime.budget import HeadSetting
from focus_runtime.composition.attach import compose
from focus_runtime.errors import ConfigError
from focus_runtime.tuning.meter import BudgetMeter, Measured
from focus_runtime.tuning.search import FINE, Progress, Target, pareto, search
from focus_runtime.tuning.sensitivity import Sensitivities
from tests.helpers import build_centroids, build_model, random_ids

USUAL, FULL = HeadSetting(1, 8), HeadSetting(0, 0, full=True)
SETTINGS = (HeadSetting(2, 8), HeadSetting(1, 2), FULL)


@pytest.fixture(scope="module")
def meter():
    model = build_model(num_hidden_layers=3)
    focus = compose(model, build_centroids(model), window=8)
    yield BudgetMeter(focus, {"a": random_ids(48, batch=2, seed=1), "b": random_ids(48, seed=2)})
    focus.detach()


class Planted:
    """A meter whose heads have known gains by full attention, of which estimates are `factor` times too large."""

    domains = ("a", "a")
    usual = USUAL

    def __init__(self, gains, factor=1.5):
        self.gains, self.factor = np.array(gains, dtype=float), factor
        self.base = Measured((), np.array([1.0, 1.0]), 0.2)

    def measure(self, budget):
        taken = [(entry.layer, entry.head) for entry in budget if entry.full]
        gain = sum(self.gains[place] for place in taken)
        return Measured(tuple(budget), self.base.nll - gain, 0.2 + 0.8 * len(taken) / self.gains.size)

    def sensitivities(self, budget, settings, on_sequence):
        on_sequence()
        now = np.zeros_like(self.gains)
        for entry in budget:
            now[entry.layer, entry.head] = self.gains[entry.layer, entry.head]
        full = [self.gains if setting.full else np.zeros_like(self.gains) for setting in settings]
        gain = self.factor * (np.stack(full, axis=1) - now[:, None])
        pairs = np.array([[1.0 if setting.full else 0.2 for setting in settings]] * len(self.gains))
        return Sensitivities(tuple(range(len(self.gains))), settings, gain, pairs)

    def excess(self, measured):
        return {"a": measured.nll[0] - 0.5}


def places(measured):
    return {(entry.layer, entry.head) for entry in measured.budget if entry.full}


def test_the_best_heads_are_taken_first_and_no_more_than_needed():
    gains = np.full((6, 4), 0.001)
    gains[3, 1], gains[5, 0], gains[0, 2] = 0.2, 0.15, 0.1
    planted = Planted(gains)
    result = search(planted, [FULL], Target(loss=0.06), Progress())
    assert places(result.chosen) == {(3, 1), (5, 0), (0, 2)}
    assert [(step.layer, step.head) for step in result.steps[:3]] == [(3, 1), (5, 0), (0, 2)]
    assert result.closest is result.chosen


@pytest.mark.parametrize("pairs", [0.241, 0.45, 0.99])
def test_a_share_of_pairs_is_used_up_and_not_passed(pairs):
    gains = 0.01 * (np.arange(5)[:, None] + np.linspace(1, 1.5, 40))
    result = search(Planted(gains), [FULL], Target(pairs=pairs), Progress())
    assert result.chosen.retained_pairs == pytest.approx(pairs, abs=FINE + 0.8 / gains.size)
    assert result.chosen.retained_pairs <= pairs


def test_changes_that_lose_are_never_tried():
    gains = [[0.1, -0.3], [0.2, -0.1]]
    result = search(Planted(gains), [FULL], Target(loss=0.0), Progress())
    assert result.chosen is None
    assert places(result.closest) == {(0, 0), (1, 0)}
    assert all(places(point) <= {(0, 0), (1, 0)} for point in result.points)


def test_heads_that_are_better_off_with_less_get_less():
    """A setting with fewer pairs that wins is where the path starts, and the target is found below the base's pairs."""

    class Narrow(Planted):
        def measure(self, budget):
            narrow = sum(entry.window == 2 for entry in budget)
            return Measured(tuple(budget), self.base.nll - 0.1 * narrow, 0.2 - 0.1 * narrow / self.gains.size)

        def sensitivities(self, budget, settings, on_sequence):
            windows = np.array([0.1 if setting.window == 2 else 0.0 for setting in settings])
            own = {(entry.layer, entry.head): 0.1 for entry in budget}
            gain = np.array([[[w - own.get((layer, h), 0.0) for h in range(2)] for w in windows] for layer in range(2)])
            pairs = np.array([[0.1 if setting.window == 2 else 0.2 for setting in settings]] * 2)
            return Sensitivities((0, 1), settings, gain, pairs)

    result = search(Narrow(np.zeros((2, 2))), [HeadSetting(1, 2)], Target(loss=0.15), Progress())
    assert {(entry.layer, entry.head, entry.window) for entry in result.chosen.budget} == {
        (layer, head, 2) for layer in range(2) for head in range(2)
    }
    assert result.chosen.retained_pairs == pytest.approx(0.1)


def test_on_a_model_every_point_was_measured_and_the_target_is_met(meter):
    target = Target(pairs=(meter.base.retained_pairs + 1) / 2)
    progress, calls = Progress(), []
    progress.on_step = lambda done, total: calls.append((done, total))
    result = search(meter, SETTINGS, target, progress)
    assert result.chosen is not None
    assert result.chosen.retained_pairs <= target.pairs
    assert result.chosen.nll.mean() == min(
        point.nll.mean() for point in result.points if point.retained_pairs <= target.pairs
    )
    for point in result.points:
        np.testing.assert_array_equal(meter.measure(point.budget).nll, point.nll)
    assert min(point.retained_pairs for point in result.points) < meter.base.retained_pairs
    assert [done for done, _ in calls] == list(range(1, len(calls) + 1))
    assert all(done <= total for done, total in calls)


def test_a_stopped_search_goes_on_where_it_was(meter):
    class StoppedError(Exception):
        pass

    progress = Progress()

    def stop(done, total):
        if done == 7:
            raise StoppedError

    progress.on_step = stop
    target = Target(pairs=0.7)
    with pytest.raises(StoppedError):
        search(meter, SETTINGS, target, progress)
    known, estimates = dict(progress.known), dict(progress.estimates)
    assert known
    assert estimates
    progress.on_step = lambda done, total: None
    result = search(meter, SETTINGS, target, progress)
    assert all(progress.known[budget] is measured for budget, measured in known.items())
    assert all(progress.estimates[budget] is found for budget, found in estimates.items())
    whole = search(meter, SETTINGS, target, Progress())
    assert [point.budget for point in whole.points] == [point.budget for point in result.points]


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
