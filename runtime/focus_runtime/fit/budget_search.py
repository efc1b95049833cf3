"""Search a budget: propose budgets from what settings of heads are estimated to cost, then measure them as a whole.

A proposal is a choice of one setting for each head. A price of pairs turns the estimate and the pairs kept into one
number, a quadratic function of the choice. One head after another takes its best setting given all others, until none
moves; a higher price gives a budget with fewer pairs. That is done for falling prices, each from full attention and
from the budget of the price before, which finds heads whose errors cancel.

Shape suffixes: N heads that are told apart, S settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from focus_runtime.budget import HeadSetting, to_budget
from focus_runtime.errors import ConfigError
from focus_runtime.fit.budget_meter import Budget, BudgetMeter, Costs, Measured

PRICES = np.geomspace(1e2, 1e-5, 72)  # nats for all pairs of all heads, falling by a fifth
HALVINGS = 8  # between two prices
SWEEPS = 30  # over all heads, at most; some five are usual
FINE = 0.002  # share of pairs to which a target is looked for
TRIES = 8  # budgets measured for a target, at most
CURVE = 8  # budgets measured all along, for the choice of another


@dataclass(frozen=True, slots=True)
class Proposal:
    """A budget: settings by layer and query head, its share of causal pairs and its divergence, both estimated."""

    settings: dict[tuple[int, int], HeadSetting]
    pairs: float
    divergence: float


class Proposals:
    """Budgets that follow from estimates, of which full attention is a setting."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._full = next(place for place, setting in enumerate(costs.settings) if setting.full)
        layers, heads, choices = costs.products.shape[:3]
        self._products_NSNS = costs.products.reshape(layers * heads, choices, layers * heads, choices)
        self._pairs_NS = np.repeat(costs.pairs, heads, axis=0) / (layers * heads)
        number, option = np.arange(layers * heads)[:, None], np.arange(choices)
        self._own_NS = self._products_NSNS[number, option, number, option]
        self.fewest_pairs = float(self._pairs_NS.min(axis=1).sum())  # share of them if all heads have the cheapest
        self._path: list[tuple[float, NDArray[np.int64]]] = []  # prices and choices, as prices fall
        choice_N = self._pairs_NS.argmin(axis=1)
        for price in PRICES.tolist():
            choice_N = self._best(price, choice_N)
            self._path.append((price, choice_N))

    def within(self, pairs: float) -> Proposal:
        """The budget with the least estimated divergence found with at most this share of pairs, or the cheapest."""
        places = [place for place, (_, choice_N) in enumerate(self._path) if self._kept(choice_N) <= pairs]
        if not places:
            return self._proposal(self._pairs_NS.argmin(axis=1))
        best = min((self._path[place][1] for place in places), key=self._divergence)
        above = max(places) + 1  # the first price of which no cheaper one keeps so few
        if above < len(self._path):
            (high, start), (low, _) = self._path[above - 1], self._path[above]
            for _ in range(HALVINGS):
                middle = math.sqrt(low * high)
                choice_N = self._best(middle, start)
                if self._kept(choice_N) > pairs:
                    low = middle
                    continue
                high, start = middle, choice_N
                best = min(best, choice_N, key=self._divergence)
        return self._proposal(best)

    def _best(self, price: float, start: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N,) places of settings at which no single head gains by another; the better of two starts."""
        found = [self._settled(price, begin) for begin in (start, np.full(len(start), self._full))]
        return min(found, key=lambda choice_N: self._divergence(choice_N) + price * self._kept(choice_N))

    def _settled(self, price: float, start: NDArray[np.int64]) -> NDArray[np.int64]:
        choice_N, number = start.copy(), len(start)
        with_others_NS = self._products_NSNS[:, :, np.arange(number), choice_N].sum(axis=2, dtype=np.float64)
        alone_NS = self._own_NS / 2 + price * self._pairs_NS
        generator = np.random.default_rng(0)
        for _ in range(SWEEPS):
            moved = False
            for head in generator.permutation(number):
                now = choice_N[head]
                worth_S = alone_NS[head] + with_others_NS[head] - self._products_NSNS[head, :, head, now]
                best = int(worth_S.argmin())
                if worth_S[best] < worth_S[now]:
                    with_others_NS += self._products_NSNS[:, :, head, best] - self._products_NSNS[:, :, head, now]
                    choice_N[head], moved = best, True
            if not moved:
                break
        return choice_N

    def _proposal(self, choice_N: NDArray[np.int64]) -> Proposal:
        heads, share = self.costs.products.shape[1], self.costs.counts.query // self.costs.products.shape[1]
        settings = {
            (layer, head * share + query): self.costs.settings[choice_N[place * heads + head]]
            for place, layer in enumerate(self.costs.layers)
            for head in range(heads)
            for query in range(share)
        }
        return Proposal(settings, self._kept(choice_N), self._divergence(choice_N))

    def _kept(self, choice_N: NDArray[np.int64]) -> float:
        return float(self._pairs_NS[np.arange(len(choice_N)), choice_N].sum())

    def _divergence(self, choice_N: NDArray[np.int64]) -> float:
        number = np.arange(len(choice_N))
        own = self._products_NSNS[number[:, None], choice_N[:, None], number, choice_N]
        return float(own.sum(dtype=np.float64) / 2)


@dataclass(frozen=True, slots=True)
class Target:
    """What a budget must meet; one of the two."""

    loss: float | None = None  # largest perplexity over that of full attention minus 1, in every domain
    pairs: float | None = None  # largest share of causal pairs kept

    def __post_init__(self) -> None:
        if (self.loss is None) == (self.pairs is None):
            raise ConfigError("the target names both a loss and a share of pairs, or none", expected="one of them")
        if self.loss is not None and not 0 <= self.loss < 10:
            raise ConfigError(f"the target loss is {self.loss}", expected="such as 0.01 for one per cent, at least 0")
        if self.pairs is not None and not 0 < self.pairs <= 1:
            raise ConfigError(f"the target share of pairs is {self.pairs}", expected="above 0 and at most 1")

    def excess(self, meter: BudgetMeter, point: Measured) -> float:
        """By how much a measured budget misses the target; at most 0 if it meets it."""
        if self.loss is not None:
            return max(meter.excess(point).values()) - self.loss
        assert self.pairs is not None
        return point.retained_pairs - self.pairs


@dataclass(slots=True)
class Search:
    """A finished search.

    `chosen`: the point that meets the target with fewest pairs, or with least loss. None: no point does.
    """

    points: list[Measured]  # budgets measured as a whole, fewest pairs first; the base is among them
    chosen: Measured | None
    closest: Measured  # the point that comes nearest to the target
    estimated: dict[Budget, float]  # by budget, the divergence from full attention's predictions in nats per token

    @property
    def offered(self) -> Measured:
        """The chosen point, or the closest if none meets the target."""
        return self.chosen or self.closest


@dataclass(slots=True)
class Progress:
    """Results of a search while it runs, so that it can be continued: measurements by budget, and estimates.

    `on_step` is called after every measurement with the number done and the number expected; it may raise to stop.
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
        settings: that every head may get, besides full attention and the usual one.
        by_query: whether query heads that share a key-value head may get different settings.
        own: a budget that the groups may have been trained under, measured too; estimates know nothing of that.
    """
    return _Search(meter, settings, target, progress, by_query, own).run()


@dataclass
class _Search:
    meter: BudgetMeter
    settings: Sequence[HeadSetting]
    target: Target
    progress: Progress
    by_query: bool
    own: Budget

    def __post_init__(self) -> None:
        self.settings = tuple(dict.fromkeys([HeadSetting(0, 0, full=True), self.meter.usual, *self.settings]))
        self.points: dict[Budget, Measured] = {self.meter.base.budget: self.meter.base}
        self.estimated: dict[Budget, float] = {}
        self.done = 0
        self.expected = len(self.meter.domains) + bool(self.own) + TRIES + CURVE

    def run(self) -> Search:
        if self.own:
            self._measure(self.own)
        proposals = Proposals(self._costs())
        if self.target.pairs is not None:
            self._use_pairs(proposals, self.target.pairs)
        else:
            self._look_for_loss(proposals)
        # not the ends: only the shortest windows, and everything
        for pairs in np.linspace(proposals.fewest_pairs, 1, CURVE + 2)[1:-1]:
            self._measured(proposals, float(pairs))
        points = sorted(self.points.values(), key=lambda point: point.retained_pairs)
        excess = [self.target.excess(self.meter, point) for point in points]
        met = [point for point, over in zip(points, excess, strict=True) if over <= 0]
        of_pairs = self.target.pairs is not None
        chosen = min(met, key=lambda point: point.loss if of_pairs else point.retained_pairs, default=None)
        return Search(points, chosen, chosen or points[int(np.argmin(excess))], self.estimated)

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
        low, high = proposals.fewest_pairs, 1.0
        for _ in range(TRIES):
            if high - low <= FINE:
                return
            middle = (low + high) / 2
            met = self.target.excess(self.meter, self._measured(proposals, middle)) <= 0
            low, high = (low, middle) if met else (middle, high)

    def _measured(self, proposals: Proposals, pairs: float) -> Measured:
        proposal = proposals.within(pairs)
        budget = to_budget(proposal.settings, self.meter.usual, proposals.costs.counts.shared_by)
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
