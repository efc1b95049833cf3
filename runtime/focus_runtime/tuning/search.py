"""Search a budget: estimate what every change of one head wins, then measure budgets of the best changes together.

Gains of single changes do not add up, so no loss is predicted from the estimates: they only give the order in which
changes are tried, and every budget that is offered was measured as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from focus_runtime.budget import HeadSetting, to_budget
from focus_runtime.errors import ConfigError
from focus_runtime.tuning.meter import Budget, BudgetMeter, Measured
from focus_runtime.tuning.sensitivity import Path, Sensitivities, Step, mean_of

ROUNDS = 2  # estimates, each around the best budget so far
HALVINGS = 12  # about as many budgets are measured in a round
FINE = 0.002  # share of pairs to which a target is looked for
CURVE = 8  # budgets measured all along the last path


@dataclass(frozen=True, slots=True)
class Target:
    """What a budget must meet; one of the two.

    Attributes:
        loss: largest perplexity over that of full attention minus 1, in every domain.
        pairs: largest share of causal pairs kept.
    """

    loss: float | None = None
    pairs: float | None = None

    def __post_init__(self) -> None:
        if (self.loss is None) == (self.pairs is None):
            raise ConfigError("the target names both a loss and a share of pairs, or none", expected="one of them")
        if self.loss is not None and not 0 <= self.loss < 10:
            raise ConfigError(f"the target loss is {self.loss}", expected="such as 0.01 for one per cent, at least 0")
        if self.pairs is not None and not 0 < self.pairs <= 1:
            raise ConfigError(f"the target share of pairs is {self.pairs}", expected="above 0 and at most 1")


@dataclass(slots=True)
class Search:
    """A finished search.

    Attributes:
        steps: of the first estimate, those worth most nats per pair first.
        points: budgets measured as a whole, fewest pairs first; the base is among them.
        chosen: the point that meets the target with fewest pairs, or with least loss; None when none does.
        closest: the point that comes nearest to the target.
    """

    steps: list[Step]
    points: list[Measured]
    chosen: Measured | None
    closest: Measured


@dataclass(slots=True)
class Progress:
    """Where the results of a search go while it runs, so that it can be continued.

    Attributes:
        on_step: called after every measurement with the number done and the number expected; may raise to stop.
        known: measurements by budget that need not be made again; grows.
        estimates: by the budget around which was estimated; grows.
    """

    on_step: Callable[[int, int], None] = lambda done, total: None
    known: dict[Budget, Measured] = field(default_factory=dict)
    estimates: dict[Budget, Sensitivities] = field(default_factory=dict)


def search(meter: BudgetMeter, settings: Sequence[HeadSetting], target: Target, progress: Progress) -> Search:
    """The cheapest measured budget that meets a target.

    Every round estimates all changes around the best budget so far, and looks for the target on the path of budgets
    that follows from the mean of all estimates: the derivatives at both ends of a change are nearer to what it wins
    than either of them. At last budgets all along the path are measured, for the choice of another.

    Args:
        meter: on calibration text.
        settings: that every head may get, besides those it has.
        target: of perplexity in every domain, or of pairs.
        progress: takes every measurement.
    """
    return _Search(meter, settings, target, progress).run()


class _Search:
    def __init__(self, meter: BudgetMeter, settings: Sequence[HeadSetting], target: Target, progress: Progress) -> None:
        self.meter, self.target, self.progress = meter, target, progress
        self.settings = tuple(dict.fromkeys([meter.usual, *settings]))
        self.points: dict[Budget, Measured] = {meter.base.budget: meter.base}
        self.around: dict[Budget, Sensitivities] = {}
        self.done = 0
        self.expected = ROUNDS * (len(meter.domains) + HALVINGS) + CURVE

    def run(self) -> Search:
        best, first = self.meter.base, None
        for number in range(ROUNDS):
            path = self._path(best.budget)
            first = first or path
            self._look_for_target(path, best)
            before, best = best, self._best()
            if number and best is before:
                break
        for place in np.linspace(0, len(path.steps), CURVE):
            self._measured(path, round(place))
        points = sorted(self.points.values(), key=lambda point: point.retained_pairs)
        assert first is not None
        return Search(first.steps, points, _chosen(self.meter, points, self.target), self._best())

    def _best(self) -> Measured:
        points = list(self.points.values())
        return _chosen(self.meter, points, self.target) or _closest(self.meter, points, self.target)

    def _path(self, budget: Budget) -> Path:
        known = self.progress.estimates
        if budget not in known:
            known[budget] = self.meter.sensitivities(budget, self.settings, self._step)
        self.around[budget] = known[budget]
        return Path(mean_of(list(self.around.values())))

    def _look_for_target(self, path: Path, start: Measured) -> None:
        """Measure budgets around the place on the path from which on more pairs are of no use."""
        low = high = path.nearest(start.retained_pairs)
        last, stride = len(path.steps), 1
        while not self._beyond(path, high) and high < last:
            low, high, stride = high, min(high + stride, last), 2 * stride
        while self._beyond(path, low) and low > 0:
            low, high, stride = max(low - stride, 0), low, 2 * stride
        while high - low > 1 and path.retained_pairs(high) - path.retained_pairs(low) > FINE:
            middle = (low + high) // 2
            low, high = (low, middle) if self._beyond(path, middle) else (middle, high)

    def _beyond(self, path: Path, place: int) -> bool:
        """Whether more pairs are of no use: the loss is low enough, or the pairs are too many."""
        point = self._measured(path, place)
        if self.target.loss is not None:
            return max(self.meter.excess(point).values()) <= self.target.loss
        assert self.target.pairs is not None
        return point.retained_pairs > self.target.pairs

    def _measured(self, path: Path, place: int) -> Measured:
        budget = to_budget(path.settings(place), self.meter.usual)
        if budget not in self.points:
            if budget not in self.progress.known:
                self.progress.known[budget] = self.meter.measure(budget)
            self.points[budget] = self.progress.known[budget]
            self._step()
        return self.points[budget]

    def _step(self) -> None:
        self.done += 1
        self.progress.on_step(self.done, max(self.done, self.expected))


def pareto(points: Iterable[Measured]) -> list[Measured]:
    """Points of which no other has at most as many pairs and less loss, fewest pairs first."""
    best: list[Measured] = []
    for point in sorted(points, key=lambda point: (point.retained_pairs, point.nll.mean())):
        if not best or point.nll.mean() < best[-1].nll.mean():
            best.append(point)
    return best


def _chosen(meter: BudgetMeter, points: Sequence[Measured], target: Target) -> Measured | None:
    if target.loss is not None:
        met = [point for point in points if max(meter.excess(point).values()) <= target.loss]
        return min(met, key=lambda point: point.retained_pairs, default=None)
    assert target.pairs is not None
    met = [point for point in points if point.retained_pairs <= target.pairs]
    return min(met, key=lambda point: float(np.mean(point.nll)), default=None)


def _closest(meter: BudgetMeter, points: Sequence[Measured], target: Target) -> Measured:
    if target.loss is not None:
        return min(points, key=lambda point: max(meter.excess(point).values()))
    return min(points, key=lambda point: point.retained_pairs)
