"""What a budget does to calibration text: loss and pairs kept, measured from the first layer that it changes.

Shape suffixes: N sequences, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.budget import HeadException, HeadSetting
from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.observe import RecordedPass, recorded_outputs, resumed_at
from focus_runtime.fit.budget.costs import Costs, measure_costs
from focus_runtime.fit.budget.sensitivity import Sensitivities, measure_sensitivities
from focus_runtime.measure.loss import check_positions, final_hidden, layer_shares, token_nll
from focus_runtime.models.devices import input_device

Budget = tuple[HeadException, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """A budget on calibration text.

    Attributes:
        budget: its exceptions.
        nll: (N,) mean loss of every sequence in nats per token.
        loss: their mean, by their tokens.
        retained_pairs: allowed pairs over causal pairs, mean over sequences as long as the first, layers with routers
            and heads.
    """

    budget: Budget
    nll: NDArray[np.float64]
    loss: float
    retained_pairs: float


class BudgetMeter:
    """Measures budgets of one composition on the same sequences.

    A pass starts at the first layer in which a budget differs from the composition's own: what the layers before it
    returned is kept, N times (layers x T x width) numbers of the model's type.

    Args:
        focus: composed with the budget all others are compared with.
        sequences: by domain, (N, T) token ids each; lengths T of domains may differ.

    Attributes:
        domains: the domain of each sequence.
        full: (N,) loss of each sequence under full attention.
        base: the composition's own budget.
        counted_at: tokens of the sequences on which pairs are counted, those of the first one's length.
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

    def measure(self, budget: Iterable[HeadException]) -> Measured:
        """Loss and pairs kept under a budget.

        Raises:
            ConfigError: it contradicts the configuration.
        """
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

    def sensitivities(
        self, budget: Iterable[HeadException], settings: Sequence[HeadSetting], on_sequence: Callable[[], None]
    ) -> Sensitivities:
        """What every head would win or lose at other settings than a budget gives it, estimated.

        Args:
            budget: around which is estimated.
            settings: that every head may get.
            on_sequence: called after every sequence; may raise to stop.
        """
        with self.focus.with_config(self._config.replace(budget=tuple(budget))):
            return measure_sensitivities(self.focus, self._ids, settings, on_sequence)

    def costs(
        self,
        settings: Sequence[HeadSetting],
        on_sequence: Callable[[Costs], None],
        start: Costs | None = None,
        *,
        by_query: bool = True,
    ) -> Costs:
        """What settings of heads cost together, estimated on the same sequences; see `measure_costs`.

        Args:
            settings: that every head may get.
            on_sequence: called after every sequence with the estimates so far; may raise to stop.
            start: estimates from the first of the sequences.
            by_query: whether query heads are told apart.
        """
        return measure_costs(self.focus, self._ids, settings, on_sequence, start, by_query=by_query)

    @property
    def usual(self) -> HeadSetting:
        """What heads without an exception execute."""
        return HeadSetting(self._config.top_k, self._config.window)

    def excess(self, measured: Measured) -> dict[str, float]:
        """By domain, perplexity over that of full attention, minus 1; 0.01 is one per cent more."""
        difference = measured.nll - self.full
        names = np.array(self.domains)
        return {name: math.expm1(difference[names == name].mean()) for name in dict.fromkeys(self.domains)}

    def _nll(self, ids: Tensor) -> float:
        model = self.focus.model
        return token_nll(model, final_hidden(model, ids), ids).double().mean().item()

    def _layer_shares(self) -> dict[int, float]:
        return {layer: layer_shares(masks)[0] for layer, masks in self.focus.head_masks().items()}

    def _measured(self, budget: Budget, nll: list[float], shares: list[dict[int, float]]) -> Measured:
        rows = [
            list(row.values()) for row, length in zip(shares, self._lengths, strict=True) if length == self.counted_at
        ]
        return Measured(budget, np.array(nll), float(np.average(nll, weights=self._lengths)), float(np.mean(rows)))
