"""What every head would win or lose at other settings, estimated for all of them in one backward pass.

Every head returns what it executes plus a times the difference to what it would return at another setting; the loss's
derivative at a = 0 is the estimate of the change from a = 0 to 1. It is of first order and too large where a change is
large, so it only says which heads are worth measuring: on the default model it was about 1.5 times the measured
change, for the heads that matter most in the measured order but for a few. Budgets are searched by costs.py.

Shape suffixes: N sequences, L layers, S settings, H key-value heads.
"""

from __future__ import annotations

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
        shares.append(setting_shares(focus, layers, settings))
        on_sequence()
    return Sensitivities(layers, tuple(settings), np.mean(gains, axis=0), np.mean(shares, axis=0))


def setting_shares(focus: FocusModel, layers: Sequence[int], settings: Sequence[HeadSetting]) -> list[list[float]]:
    """Share of causal pairs that a head of each layer would have kept at each setting in the latest pass, (L, S).

    Args:
        focus: after a pass.
        layers: numbers of L focused layers.
        settings: S settings.
    """
    assignments, rules, config = focus.assignments(), focus.pair_rules(), focus.config

    def share(layer: int, setting: HeadSetting) -> float:
        heads = LayerHeads((HeadGroup(setting, (0,)),), (config.top_k if setting.full else setting.top_k,))
        groups = memberships(assignments[layer], heads.top_ks, config.top_k)
        return layer_shares(head_masks(heads, groups, config, rules[layer].sliding_window))[0]

    return [[share(layer, setting) for setting in settings] for layer in layers]
