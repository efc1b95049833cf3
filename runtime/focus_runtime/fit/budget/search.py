"""Search a budget: estimate what settings of heads cost together, then measure budgets that follow from it as a whole.

Estimates only propose budgets: every one that is offered was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from focus_runtime.budget import HeadSetting, to_budget
from focus_runtime.errors import ConfigError
from focus_runtime.fit.budget.costs import Costs
from focus_runtime.fit.budget.meter import Budget, BudgetMeter, Measured
from focus_runtime.fit.budget.proposals import Proposals

FINE = 0.002  # share of pairs to which a target is looked for
TRIES = 8  # budgets measured for a target, at most
CURVE = 8  # budgets measured all along, for the choice of another


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
        points: budgets measured as a whole, fewest pairs first; the base is among them.
        chosen: the point that meets the target with fewest pairs, or with least loss; None when none does.
        closest: the point that comes nearest to the target.
        estimated: by budget, the divergence from full attention's predictions that was estimated, in nats per token.
    """

    points: list[Measured]
    chosen: Measured | None
    closest: Measured
    estimated: dict[Budget, float]

    @property
    def offered(self) -> Measured:
        """The chosen point, or the closest where none meets the target."""
        return self.chosen or self.closest


@dataclass(slots=True)
class Progress:
    """Where the results of a search go while it runs, so that it can be continued.

    Attributes:
        on_step: called after every measurement with the number done and the number expected; may raise to stop.
        known: measurements by budget that need not be made again; grows.
        costs: estimates so far; None before the first sequence.
    """

    on_step: Callable[[int, int], None] = lambda done, total: None
    known: dict[Budget, Measured] = field(default_factory=dict)
    costs: Costs | None = None


def search(
    meter: BudgetMeter,
    settings: Sequence[HeadSetting],
    target: Target,
    progress: Progress,
    *,
    by_query: bool = True,
    own: Budget = (),
) -> Search:
    """The cheapest measured budget that meets a target.

    Args:
        meter: on calibration text.
        settings: that every head may get, besides full attention and the usual one.
        target: of perplexity in every domain, or of pairs.
        progress: takes every measurement.
        by_query: whether query heads that share a key-value head may get different settings.
        own: a budget that the groups may have been trained under, measured too; estimates know nothing of that. None
            where there is none.
    """
    return _Search(meter, settings, target, progress, by_query, own).run()


class _Search:
    def __init__(
        self,
        meter: BudgetMeter,
        settings: Sequence[HeadSetting],
        target: Target,
        progress: Progress,
        by_query: bool,
        own: Budget,
    ) -> None:
        self.meter, self.target, self.progress, self.by_query, self.own = meter, target, progress, by_query, own
        self.settings = tuple(dict.fromkeys([HeadSetting(0, 0, full=True), meter.usual, *settings]))
        self.points: dict[Budget, Measured] = {meter.base.budget: meter.base}
        self.estimated: dict[Budget, float] = {}
        self.done = 0
        self.expected = len(meter.domains) + bool(own) + TRIES + CURVE

    def run(self) -> Search:
        if self.own:
            self._measure(self.own)
        proposals = Proposals(self._costs())
        if self.target.pairs is not None:
            self._use_pairs(proposals, self.target.pairs)
        else:
            self._look_for_loss(proposals)
        # not the ends: the shortest windows alone, and everything
        for pairs in np.linspace(proposals.fewest_pairs, 1, CURVE + 2)[1:-1]:
            self._measured(proposals, float(pairs))
        points = sorted(self.points.values(), key=lambda point: point.retained_pairs)
        chosen = _chosen(self.meter, points, self.target)
        return Search(points, chosen, chosen or _closest(self.meter, points, self.target), self.estimated)

    def _costs(self) -> Costs:
        def keep(costs: Costs) -> None:
            self.progress.costs = costs
            self._step()

        start = self.progress.costs
        if start is not None:
            self.done += start.sequences
        return self.meter.costs(self.settings, keep, start, by_query=self.by_query)

    def _use_pairs(self, proposals: Proposals, most: float) -> None:
        """Measure budgets that keep just fewer pairs than the target, whatever the estimates of pairs are off by."""
        asked = most
        for _ in range(TRIES):
            over = self._measured(proposals, asked).retained_pairs - most
            if -FINE <= over <= 0 or asked <= proposals.fewest_pairs:
                return
            asked = min(1.0, max(proposals.fewest_pairs, asked - over - (FINE / 2 if over > 0 else 0)))

    def _look_for_loss(self, proposals: Proposals) -> None:
        """Measure budgets around the fewest pairs at which the loss is low enough in every domain."""
        assert self.target.loss is not None
        low, high = proposals.fewest_pairs, 1.0
        for _ in range(TRIES):
            if high - low <= FINE:
                return
            middle = (low + high) / 2
            met = max(self.meter.excess(self._measured(proposals, middle)).values()) <= self.target.loss
            low, high = (low, middle) if met else (middle, high)

    def _measured(self, proposals: Proposals, pairs: float) -> Measured:
        proposal = proposals.within(pairs)
        shared_by = proposals.costs.counts.shared_by
        budget = to_budget(proposal.settings, self.meter.usual, shared_by)
        if budget != self.meter.base.budget:
            self.estimated[budget] = proposal.divergence
        return self._measure(budget)

    def _measure(self, budget: Budget) -> Measured:
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
    for point in sorted(points, key=lambda point: (point.retained_pairs, point.loss)):
        if not best or point.loss < best[-1].loss:
            best.append(point)
    return best


def _chosen(meter: BudgetMeter, points: Sequence[Measured], target: Target) -> Measured | None:
    if target.loss is not None:
        met = [point for point in points if max(meter.excess(point).values()) <= target.loss]
        return min(met, key=lambda point: point.retained_pairs, default=None)
    assert target.pairs is not None
    met = [point for point in points if point.retained_pairs <= target.pairs]
    return min(met, key=lambda point: point.loss, default=None)


def _closest(meter: BudgetMeter, points: Sequence[Measured], target: Target) -> Measured:
    if target.loss is not None:
        return min(points, key=lambda point: max(meter.excess(point).values()))
    return min(points, key=lambda point: point.retained_pairs)
