"""Budgets that keep few pairs and are estimated to cost little: a choice of one setting for each head.

A price of pairs turns the estimate and the pairs kept into one number, a quadratic function of the choice. One head
after another takes its best setting given all others, until none moves; a higher price gives a budget with fewer pairs.
That is done for falling prices, each from full attention and from the budget of the price before, which finds heads
whose errors cancel.

Shape suffixes: N heads that are told apart, S settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_runtime.budget import HeadSetting
from focus_runtime.fit.budget.costs import Costs

PRICES = np.geomspace(1e2, 1e-5, 72)  # nats for all pairs of all heads, falling by a fifth
HALVINGS = 8  # between two prices
SWEEPS = 30  # over all heads, at most; some five are usual


@dataclass(frozen=True, slots=True)
class Proposal:
    """A budget.

    Attributes:
        settings: by layer and query head.
        pairs: share of causal pairs, mean over layers and heads, as estimated.
        divergence: from full attention's predictions in nats per token, as estimated.
    """

    settings: dict[tuple[int, int], HeadSetting]
    pairs: float
    divergence: float


class Proposals:
    """Budgets that follow from estimates.

    Args:
        costs: estimates; full attention is among the settings.

    Attributes:
        costs: the same.
        fewest_pairs: share of causal pairs where every head has the cheapest setting.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._full = next(place for place, setting in enumerate(costs.settings) if setting.full)
        layers, heads, choices = costs.products.shape[:3]
        self._products_NSNS = costs.products.reshape(layers * heads, choices, layers * heads, choices)
        self._pairs_NS = np.repeat(costs.pairs, heads, axis=0) / (layers * heads)
        number, option = np.arange(layers * heads)[:, None], np.arange(choices)
        self._own_NS = self._products_NSNS[number, option, number, option]
        self.fewest_pairs = float(self._pairs_NS.min(axis=1).sum())
        self._path = self._falling()

    def within(self, pairs: float) -> Proposal:
        """The budget with the least estimated divergence that is found with at most so many pairs.

        Args:
            pairs: share of causal pairs; the cheapest budget where it is below `fewest_pairs`.
        """
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

    def _falling(self) -> list[tuple[float, NDArray[np.int64]]]:
        """Prices and choices, as prices fall."""
        path, start = [], self._pairs_NS.argmin(axis=1)
        for price in PRICES:
            start = self._best(float(price), start)
            path.append((float(price), start))
        return path

    def _best(self, price: float, start: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N,) places of settings at which no head alone gains by another, of two starts the better."""
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
        return Proposal(self._settings(choice_N), self._kept(choice_N), self._divergence(choice_N))

    def _kept(self, choice_N: NDArray[np.int64]) -> float:
        return float(self._pairs_NS[np.arange(len(choice_N)), choice_N].sum())

    def _divergence(self, choice_N: NDArray[np.int64]) -> float:
        number = np.arange(len(choice_N))
        own = self._products_NSNS[number[:, None], choice_N[:, None], number, choice_N]
        return float(own.sum(dtype=np.float64) / 2)

    def _settings(self, choice_N: NDArray[np.int64]) -> dict[tuple[int, int], HeadSetting]:
        heads, layers = self.costs.products.shape[1], self.costs.layers
        share = self.costs.counts.query // heads
        return {
            (layer, head * share + query): self.costs.settings[choice_N[place * heads + head]]
            for place, layer in enumerate(layers)
            for head in range(heads)
            for query in range(share)
        }
