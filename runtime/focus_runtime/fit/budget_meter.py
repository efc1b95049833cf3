"""What budgets do to calibration text, measured, and what settings of heads would do, estimated.

Estimated around a composition (`sensitivities`): every head returns what it executes plus a times the difference to
what it would return at another setting; the loss's derivative at a = 0 estimates the change from a = 0 to 1. It only
says which heads are worth measuring: on the default model it was about 1.5 times the measured change.

Estimated around full attention (`Costs`), to second order, for all heads together: a small change of what heads return
raises the divergence from the model's own predictions by half of its square under the Fisher information. That is the
mean square of (gradient of the loss of tokens that the model itself has drawn, times the change), which one backward
pass gives for every head and setting at once. Squares of sums hold every interaction: errors of two heads may add up,
or cancel. Left out: products of different tokens' changes.

Shape suffixes: N sequences, L layers, S settings, H heads, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.budget import HeadCounts, HeadException, HeadGroup, HeadSetting
from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.heads import LayerHeads, head_masks, memberships
from focus_runtime.composition.modes import Alternatives, Probe
from focus_runtime.composition.observe import RecordedPass, recorded_outputs, resumed_at
from focus_runtime.measure.loss import check_positions, final_hidden, layer_shares, slabs, token_nll, vocabulary_logits
from focus_runtime.models.devices import input_device
from focus_runtime.models.structure import attention_modules, head_counts, sliding_window_of

Budget = tuple[HeadException, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """A budget on calibration text.

    `retained_pairs`: kept over causal pairs, mean over sequences as long as the first, layers with routers and heads.
    """

    budget: Budget
    nll: NDArray[np.float64]  # (N,) mean loss of every sequence in nats per token
    loss: float
    retained_pairs: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Estimates around full attention, for L layers, H heads and S settings that every head may get.

    Attributes:
        products: (L, H, S, L, H, S) float32, mean over tokens of the product of what two heads' settings would change
            in a token's loss. Half the sum over all pairs of heads, a head with itself among them, at their settings is
            the divergence in nats per token.
        pairs: (L, S) share of causal pairs that a head keeps at a setting, mean over sequences as long as the first.
    """

    layers: tuple[int, ...]
    counts: HeadCounts
    by_query: bool  # whether the H heads are query heads; else key-value heads, each with the query heads that share it
    settings: tuple[HeadSetting, ...]
    products: NDArray[np.float32]
    pairs: NDArray[np.float64]
    sequences: int  # of which these are means


class BudgetMeter:
    """Measures budgets of one composition, and estimates settings of its heads, on the same sequences.

    A pass starts at the first layer in which a budget differs from the composition's own: what the layers before it
    returned is kept, N times (layers x T x width) numbers of the model's type.

    Args:
        focus: composed with the budget all others are compared with; its model's weights get no gradient.
        sequences: by domain, (N, T) token ids each; lengths T of domains may differ.

    `full`: (N,) loss of each sequence under full attention. `counted_at`: length of the first sequence; pairs are
    counted on the sequences as long as it.
    """

    def __init__(self, focus: FocusModel, sequences: Mapping[str, Tensor]) -> None:
        self.focus, self._config = focus, focus.config
        device = input_device(focus.model)
        self._ids = [row.to(device) for rows in sequences.values() for row in rows.split(1)]
        self.domains = [name for name, rows in sequences.items() for _ in range(rows.shape[0])]
        self._lengths = [ids.shape[1] for ids in self._ids]
        self.counted_at = self._lengths[0]
        check_positions(focus.model, max(self._lengths))
        self._recorded: list[RecordedPass] = []
        self._shares: list[dict[int, float]] = []
        full, own = [], []
        with torch.no_grad():
            for ids in self._ids:
                with focus.full_attention():
                    full.append(self._nll(ids))
                with recorded_outputs(focus.model) as recorded:
                    own.append(self._nll(ids))
                self._recorded.append(recorded)
                self._shares.append(self._layer_shares())
        self.full = np.array(full)
        self.base = self._measured(self._config.budget, own, self._shares)

    @property
    def usual(self) -> HeadSetting:
        """What heads without an exception execute."""
        return HeadSetting(self._config.top_k, self._config.window)

    def measure(self, budget: Iterable[HeadException]) -> Measured:
        """Loss and pairs kept under a budget; a ConfigError if it contradicts the configuration."""
        config = self._config.replace(budget=tuple(budget))
        changed = set(config.budget) ^ set(self._config.budget)
        if not changed:
            return self.base
        first = min(entry.layer for entry in changed)
        nll, shares = [], []
        with torch.no_grad(), self.focus.with_config(config):
            for ids, recorded, before in zip(self._ids, self._recorded, self._shares, strict=True):
                with resumed_at(self.focus.model, first, recorded):
                    nll.append(self._nll(ids))
                now = self._layer_shares()
                shares.append({layer: now[layer] if layer >= first else before[layer] for layer in before})
        return self._measured(config.budget, nll, shares)

    def excess(self, measured: Measured) -> dict[str, float]:
        """By domain, perplexity over that of full attention, minus 1; 0.01 is one per cent more."""
        difference = measured.nll - self.full
        names = np.array(self.domains)
        return {name: math.expm1(difference[names == name].mean()) for name in dict.fromkeys(self.domains)}

    def sensitivities(self, settings: Sequence[HeadSetting]) -> dict[int, NDArray[np.float64]]:
        """By layer, (S, H) nats per token that one head would gain by a setting: estimates, 0 for its own setting."""
        layers = tuple(self.focus.focused_layers)
        gains = []
        for ids in self._ids:
            with torch.enable_grad(), self.focus.entered(Alternatives(tuple(settings))) as alternatives:
                loss = token_nll(self.focus.model, final_hidden(self.focus.model, ids), ids).mean()
                slopes = torch.autograd.grad(loss, [alternatives.weights[layer] for layer in layers])
            gains.append([-slope.double().cpu().numpy() for slope in slopes])
        return dict(zip(layers, np.mean(gains, axis=0), strict=True))

    def costs(
        self,
        settings: Sequence[HeadSetting],
        on_sequence: Callable[[Costs], None] = lambda costs: None,
        start: Costs | None = None,
        *,
        by_query: bool = True,
    ) -> Costs:
        """What settings of heads cost together, estimated: a forward and a backward pass for each sequence.

        `start`: estimates from the first of the sequences, not read again; `on_sequence` gets those so far and
        may raise to stop.
        """
        costs, lengths = start, self._lengths
        if costs is None:
            layers, counts = tuple(self.focus.focused_layers), head_counts(self.focus.model)
            size = (len(layers), counts.query if by_query else counts.key, len(settings))
            none, no_pairs = np.zeros((*size, *size), dtype=np.float32), np.zeros((len(layers), len(settings)))
            costs = Costs(layers, counts, by_query, tuple(settings), none, no_pairs, 0)
        for number in range(costs.sequences, len(self._ids)):
            changes_LSHT = _changes(self.focus, self._ids[number], settings, seed=number)
            changes_LHST = changes_LSHT.transpose(1, 2)
            if not by_query:
                changes_LHST = changes_LHST.unflatten(1, (costs.counts.key, -1)).sum(dim=2)
            changes_NT = changes_LHST.flatten(0, 2)
            products = (changes_NT @ changes_NT.T / changes_NT.shape[1]).cpu().numpy().reshape(costs.products.shape)
            products -= costs.products  # what `start` holds stays as it is: Ctrl-C may come at any moment
            products *= lengths[number] / sum(lengths[: number + 1])
            products += costs.products
            pairs = costs.pairs
            if lengths[number] == lengths[0]:
                own = np.array(setting_shares(self.focus, costs.layers, settings))
                pairs = pairs + (own - pairs) / lengths[: number + 1].count(lengths[0])
            costs = replace(costs, products=products, pairs=pairs, sequences=number + 1)
            on_sequence(costs)
        return costs

    def _nll(self, ids: Tensor) -> float:
        model = self.focus.model
        return token_nll(model, final_hidden(model, ids), ids).double().mean().item()

    def _layer_shares(self) -> dict[int, float]:
        return {layer: layer_shares(masks)[0] for layer, masks in self.focus.head_masks().items()}

    def _measured(self, budget: Budget, nll: list[float], shares: list[dict[int, float]]) -> Measured:
        rows = [[*row.values()] for row, length in zip(shares, self._lengths, strict=True) if length == self.counted_at]
        return Measured(budget, np.array(nll), float(np.average(nll, weights=self._lengths)), float(np.mean(rows)))


def setting_shares(focus: FocusModel, layers: Sequence[int], settings: Sequence[HeadSetting]) -> list[list[float]]:
    """(L, S) share of causal pairs that a head of each layer would have kept at each setting in the latest pass."""
    assignments, modules, config = focus.assignments(), attention_modules(focus.model), focus.config

    def share(layer: int, setting: HeadSetting) -> float:
        heads = LayerHeads((HeadGroup(setting, (0,)),), (config.top_k if setting.full else setting.top_k,))
        groups = memberships(assignments[layer], heads.top_ks, config.top_k)
        return layer_shares(head_masks(heads, groups, config, sliding_window_of(modules[layer])))[0]

    return [[share(layer, setting) for setting in settings] for layer in layers]


def _changes(focus: FocusModel, ids: Tensor, settings: Sequence[HeadSetting], seed: int) -> Tensor:
    """(L, S, H, T) fp32: what each setting of each head would change in the loss of drawn tokens, token by token."""
    with torch.enable_grad(), focus.entered(Probe(tuple(settings))) as probe:
        hidden = final_hidden(focus.model, ids)
        drawn = _drawn(focus, hidden.detach(), ids, seed)
        torch.autograd.grad(token_nll(focus.model, hidden, drawn).sum(), probe.leaf)
    return torch.stack([probe.found[layer][:, 0] for layer in focus.focused_layers])


@torch.no_grad()
def _drawn(focus: FocusModel, hidden: Tensor, ids: Tensor, seed: int) -> Tensor:
    """(1, T) ids of which each but the first is drawn from the model's prediction for its place."""
    generator = torch.Generator(hidden.device).manual_seed(seed)
    drawn = ids.clone()
    for slab in slabs(ids.shape[1] - 1):
        probabilities_NV = vocabulary_logits(focus.model, hidden[:, slab])[0].softmax(dim=-1)
        own = torch.multinomial(probabilities_NV.to(hidden.device), 1, generator=generator)[:, 0]
        drawn[0, slab.start + 1 : slab.stop + 1] = own
    return drawn
