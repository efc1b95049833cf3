"""What every head would win or lose at other settings, estimated for all of them in one backward pass.

Every head returns what it executes plus a times the difference to what it would return at another setting; the loss's
derivative at a = 0 is the estimate of the change from a = 0 to 1. It is of first order and too large where a change is
large, so it only gives the order in which changes are tried: on the default model it was about 1.5 times the measured
change, for the heads that matter most in the measured order but for a few.

Shape suffixes: N sequences, L layers, S settings, H key-value heads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.budget import HeadGroup, HeadSetting
from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.heads import LayerHeads, head_masks, memberships
from focus_runtime.measure.loss import final_hidden, layer_shares, token_nll


@dataclass(frozen=True, slots=True)
class Sensitivities:
    """Estimates around one budget.

    Attributes:
        layers: numbers of the L layers.
        settings: S settings that every head may get.
        gain: (L, S, H) nats per token that a head alone wins by a setting, mean over sequences; 0 for its own.
        pairs: (L, S) share of causal pairs that a head keeps at a setting, mean over sequences.
    """

    layers: tuple[int, ...]
    settings: tuple[HeadSetting, ...]
    gain: NDArray[np.float64]
    pairs: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Step:
    """One head takes the next setting that wins something for its pairs.

    Attributes:
        layer: layer number.
        head: key-value head.
        setting: the new one.
        gain: nats per token that it wins over the one before, estimated.
        pairs: share of all causal pairs that it adds, mean over layers and heads.
    """

    layer: int
    head: int
    setting: HeadSetting
    gain: float
    pairs: float


def measure_sensitivities(
    focus: FocusModel,
    sequences: Sequence[Tensor],
    settings: Sequence[HeadSetting],
    on_sequence: Callable[[], None] = lambda: None,
) -> Sensitivities:
    """Estimates for a composition as it is: a forward and a backward pass for every sequence.

    Args:
        focus: with the budget around which is estimated; its model's weights get no gradient.
        sequences: (1, T) token ids each, on the model's device.
        settings: that every key-value head of every focused layer may get.
        on_sequence: called after every sequence; may raise to stop.
    """
    layers = tuple(focus.focused_layers)
    gains, shares = [], []
    for ids in sequences:
        with torch.enable_grad(), focus.with_alternatives(settings) as alternatives:
            loss = token_nll(focus.model, final_hidden(focus.model, ids), ids).mean()
            slopes = torch.autograd.grad(loss, [alternatives.weights[layer] for layer in layers])
        gains.append([-slope.double().cpu().numpy() for slope in slopes])
        shares.append(_shares(focus, layers, settings))
        on_sequence()
    return Sensitivities(layers, tuple(settings), np.mean(gains, axis=0), np.mean(shares, axis=0))


def _shares(focus: FocusModel, layers: Sequence[int], settings: Sequence[HeadSetting]) -> list[list[float]]:
    """Share of causal pairs that a head of each layer would have kept at each setting in the latest pass, (L, S)."""
    assignments, rules, config = focus.assignments(), focus.pair_rules(), focus.config

    def share(layer: int, setting: HeadSetting) -> float:
        heads = LayerHeads((HeadGroup(setting, (0,)),), (setting.top_k or config.top_k,))
        groups = memberships(assignments[layer], heads.top_ks, config.top_k)
        return layer_shares(head_masks(heads, groups, config, rules[layer].sliding_window))[0]

    return [[share(layer, setting) for setting in settings] for layer in layers]


def mean_of(found: Sequence[Sensitivities]) -> Sensitivities:
    """Estimates around several budgets as one: gains over the first setting, and pairs, on average.

    Args:
        found: of the same layers and settings.
    """
    over_first = [one.gain - one.gain[:, :1] for one in found]
    pairs = np.mean([one.pairs for one in found], axis=0)
    return Sensitivities(found[0].layers, found[0].settings, np.mean(over_first, axis=0), pairs)


class Path:
    """Budgets from the fewest pairs to the least loss, each one step further than the one before.

    Of one head's settings those are taken that lie on the upper hull of gain over pairs; the steps of all heads are
    sorted by nats per pair. Without interaction between heads no other budget of as many pairs would win more, but for
    the last step.

    Args:
        found: estimates.
    """

    def __init__(self, found: Sensitivities) -> None:
        number = found.gain.shape[0] * found.gain.shape[2]
        self._first: dict[tuple[int, int], HeadSetting] = {}
        steps: list[Step] = []
        for place, layer in enumerate(found.layers):
            for head in range(found.gain.shape[2]):
                hull = _hull(found.pairs[place], found.gain[place, :, head])
                self._first[layer, head] = found.settings[hull[0]]
                for low, high in itertools.pairwise(hull):
                    gain = float(found.gain[place, high, head] - found.gain[place, low, head])
                    pairs = float(found.pairs[place, high] - found.pairs[place, low]) / number
                    steps.append(Step(layer, head, found.settings[high], gain, pairs))
        self.steps = sorted(steps, key=lambda step: step.gain / step.pairs, reverse=True)
        cheapest = [found.pairs[place].min() for place in range(len(found.layers))]
        self._pairs = np.cumsum([float(np.mean(cheapest)), *(step.pairs for step in self.steps)])

    def settings(self, place: int) -> dict[tuple[int, int], HeadSetting]:
        """Setting by layer and head after `place` steps."""
        return self._first | {(step.layer, step.head): step.setting for step in self.steps[:place]}

    def retained_pairs(self, place: int) -> float:
        """Share of causal pairs expected after `place` steps."""
        return float(self._pairs[place])

    def nearest(self, pairs: float) -> int:
        """The place with about a share of pairs."""
        return int(np.abs(self._pairs - pairs).argmin())


def _hull(pairs: NDArray[np.float64], gain: NDArray[np.float64]) -> list[int]:
    """Places on the upper hull of gain over pairs, from the fewest pairs on, as long as gains grow."""
    hull: list[int] = []
    for place in sorted(range(len(pairs)), key=lambda place: (pairs[place], -gain[place])):
        if hull and (gain[place] <= gain[hull[-1]] or pairs[place] <= pairs[hull[-1]]):
            continue
        while len(hull) > 1 and _slope(pairs, gain, hull[-1], place) >= _slope(pairs, gain, hull[-2], hull[-1]):
            hull.pop()
        hull.append(place)
    return hull


def _slope(pairs: NDArray[np.float64], gain: NDArray[np.float64], low: int, high: int) -> float:
    return float((gain[high] - gain[low]) / (pairs[high] - pairs[low]))
