"""Search a budget: measure every change of one head alone, then add the best of them, measured together.

Gains of single changes do not add up, so nothing is predicted from them: they only give the order in which changes are
tried, and every budget that is offered was measured as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from focus_runtime.budget import HeadException
from focus_runtime.errors import ConfigError
from focus_runtime.tuning.meter import Budget, BudgetMeter, Measured

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # changes together


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


@dataclass(frozen=True, slots=True)
class Change:
    """One head changed alone.

    Attributes:
        exception: the change.
        gain: nats per token that it wins, mean over sequences.
        pairs: share of all causal pairs that it adds, mean over layers and heads.
    """

    exception: HeadException
    gain: float
    pairs: float

    @property
    def worth(self) -> float:
        """Nats per pair."""
        return self.gain / max(self.pairs, 1e-9)


@dataclass(slots=True)
class Search:
    """A finished search.

    Attributes:
        changes: every change measured alone, the one worth most first.
        points: budgets measured as a whole, fewest pairs first; the base is the first.
        chosen: the point that meets the target with fewest pairs, or with least loss; None when none does.
        closest: the point that comes nearest to the target.
    """

    changes: list[Change]
    points: list[Measured]
    chosen: Measured | None
    closest: Measured


@dataclass(slots=True)
class Progress:
    """Where the results of a search go while it runs, so that it can be continued.

    Attributes:
        on_step: called after every measurement with the number done, the number expected and what was measured; may
            raise to stop.
        known: measurements by budget that need not be made again; grows.
    """

    on_step: Callable[[int, int, Measured], None] = lambda done, total, measured: None
    known: dict[Budget, Measured] = field(default_factory=dict)


def candidates(layers: Iterable[int], num_heads: int, options: Sequence[dict[str, Any]]) -> list[HeadException]:
    """Every option for every head.

    Args:
        layers: with routers.
        num_heads: key-value heads of a layer.
        options: attributes of `HeadException`, such as {"full": True} or {"top_k": 2}.
    """
    return [
        HeadException(layer=layer, head=head, **option)
        for layer in layers
        for head in range(num_heads)
        for option in options
    ]


def search(meter: BudgetMeter, changes: Sequence[HeadException], target: Target, progress: Progress) -> Search:
    """The cheapest measured budget that meets a target.

    Args:
        meter: on calibration text.
        changes: candidates, see `candidates`.
        target: of perplexity in every domain, or of pairs.
        progress: takes every measurement.
    """
    base = meter.base
    expected = len(changes) + sum(step <= len(changes) for step in STEPS)
    done = 0

    def measured(budget: Iterable[HeadException]) -> Measured:
        nonlocal done
        key = tuple(budget)
        if key not in progress.known:
            progress.known[key] = meter.measure(key)
        done += 1
        progress.on_step(done, max(done, expected), progress.known[key])
        return progress.known[key]

    alone = [_change(base, measured(_with(base.budget, [one])), one) for one in changes]
    alone.sort(key=lambda change: change.worth, reverse=True)
    ladder = _ladder(alone)
    points = [base]
    low, high = 0, None
    for count in (*(step for step in STEPS if step < len(ladder)), len(ladder)):
        points.append(measured(_with(base.budget, ladder[:count])))
        if _beyond(meter, points[-1], target):
            high = count
            break
        low = count
    while high is not None and high - low > 1:  # the turn lies between two steps
        middle = (low + high) // 2
        points.append(measured(_with(base.budget, ladder[:middle])))
        low, high = (low, middle) if _beyond(meter, points[-1], target) else (middle, high)
    points.sort(key=lambda point: point.retained_pairs)
    return Search(alone, points, _chosen(meter, points, target), _closest(meter, points, target))


def pareto(points: Iterable[Measured]) -> list[Measured]:
    """Points of which no other has at most as many pairs and less loss, fewest pairs first."""
    best: list[Measured] = []
    for point in sorted(points, key=lambda point: (point.retained_pairs, point.nll.mean())):
        if not best or point.nll.mean() < best[-1].nll.mean():
            best.append(point)
    return best


def _change(base: Measured, changed: Measured, exception: HeadException) -> Change:
    gain = float((base.nll - changed.nll).mean())
    return Change(exception, gain, changed.retained_pairs - base.retained_pairs)


def _ladder(changes: Sequence[Change]) -> list[HeadException]:
    """Changes that win something, in the order they are tried; a head's costlier one replaces its cheaper one."""
    return [change.exception for change in changes if change.gain > 0]


def _with(budget: Budget, changes: Iterable[HeadException]) -> Budget:
    """A budget with changes of heads; of two for one head the one with more pairs stays."""
    chosen = {(entry.layer, entry.head): entry for entry in budget}
    for change in changes:
        place = (change.layer, change.head)
        if place not in chosen or _rank(change) > _rank(chosen[place]):
            chosen[place] = change
    return tuple(chosen.values())


def _rank(entry: HeadException) -> tuple[bool, int, int]:
    return entry.full, entry.top_k or 0, entry.window or 0


def _beyond(meter: BudgetMeter, point: Measured, target: Target) -> bool:
    """Whether more changes are of no use: the loss is low enough, or the pairs are too many."""
    if target.loss is not None:
        return max(meter.excess(point).values()) <= target.loss
    assert target.pairs is not None
    return point.retained_pairs > target.pairs


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
