"""What settings of heads cost together, estimated to second order from one backward pass for each sequence.

Around full attention a small change of what heads return raises the divergence from the model's own predictions by half
of its square under the Fisher information. That is the mean square of (gradient of the loss of tokens that the model
itself has drawn, times the change), which one backward pass gives for every head and setting at once. Squares of sums
hold every interaction: errors of two heads may add up, or cancel. Nothing depends on which tokens the text happens to
have, so the estimate is far less noisy than losses of the text are. Left out: products of different tokens' changes.

Shape suffixes: L layers, H heads that are told apart, S settings, T tokens, N settings of all heads, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.budget import HeadCounts, HeadSetting
from focus_runtime.composition.attach import FocusModel
from focus_runtime.fit.budget.sensitivity import setting_shares
from focus_runtime.measure.loss import final_hidden, slabs, token_nll, vocabulary_logits
from focus_runtime.models.structure import head_counts


@dataclass(frozen=True, slots=True)
class Costs:
    """Estimates around full attention.

    Attributes:
        layers: numbers of the L layers.
        counts: heads of a layer.
        by_query: whether the H heads are query heads; else key-value heads, each with the query heads that share it.
        settings: S settings that every head may get; full attention costs nothing.
        products: (L, H, S, L, H, S) float32, mean over tokens of the product of what two heads' settings would change
            in a token's loss. Half the sum over all pairs of heads, a head with itself among them, at their settings is
            the divergence in nats per token. (L H S)² numbers.
        pairs: (L, S) share of causal pairs that a head keeps at a setting, mean over sequences as long as the first.
        sequences: of which these are means.
    """

    layers: tuple[int, ...]
    counts: HeadCounts
    by_query: bool
    settings: tuple[HeadSetting, ...]
    products: NDArray[np.float32]
    pairs: NDArray[np.float64]
    sequences: int


def no_costs(focus: FocusModel, settings: Sequence[HeadSetting], *, by_query: bool) -> Costs:
    """Estimates from no sequence yet.

    Args:
        focus: what is measured.
        settings: that every head may get.
        by_query: whether query heads are told apart.
    """
    layers, counts = tuple(focus.focused_layers), head_counts(focus.model)
    size = (len(layers), counts.query if by_query else counts.key, len(settings))
    products = np.zeros((*size, *size), dtype=np.float32)
    return Costs(layers, counts, by_query, tuple(settings), products, np.zeros((len(layers), len(settings))), 0)


def measure_costs(
    focus: FocusModel,
    sequences: Sequence[Tensor],
    settings: Sequence[HeadSetting],
    on_sequence: Callable[[Costs], None] = lambda costs: None,
    start: Costs | None = None,
    *,
    by_query: bool = True,
) -> Costs:
    """Estimates of all settings of all heads: a forward and a backward pass for each sequence.

    Args:
        focus: a composition; its budget plays no part. Its model's weights get no gradient.
        sequences: (1, T) token ids each, of any length T, on the model's device.
        settings: that every head of every focused layer may get.
        on_sequence: called after every sequence with the estimates so far; may raise to stop.
        start: estimates from the first of these sequences, which are not read again.
        by_query: whether query heads are told apart.
    """
    costs = start or no_costs(focus, settings, by_query=by_query)
    lengths = [ids.shape[1] for ids in sequences]
    for number in range(costs.sequences, len(sequences)):
        ids = sequences[number]
        changes_LSHT = _changes(focus, ids, settings, seed=number)
        changes_LHST = changes_LSHT.transpose(1, 2)
        if not by_query:
            changes_LHST = changes_LHST.unflatten(1, (costs.counts.key, -1)).sum(dim=2)
        changes_NT = changes_LHST.flatten(0, 2)
        products = (changes_NT @ changes_NT.T / changes_NT.shape[1]).cpu().numpy().reshape(costs.products.shape)
        products -= costs.products  # what `start` or `on_sequence` holds stays as it is: Ctrl-C may come at any moment
        products *= lengths[number] / sum(lengths[: number + 1])
        products += costs.products
        pairs = costs.pairs
        if lengths[number] == lengths[0]:
            own = np.array(setting_shares(focus, costs.layers, settings))
            pairs = pairs + (own - pairs) / lengths[: number + 1].count(lengths[0])
        costs = replace(costs, products=products, pairs=pairs, sequences=number + 1)
        on_sequence(costs)
    return costs


def _changes(focus: FocusModel, ids: Tensor, settings: Sequence[HeadSetting], seed: int) -> Tensor:
    """(L, S, H, T) fp32: what each setting of each head would change in the loss of drawn tokens, token by token."""
    with torch.enable_grad(), focus.probed(settings) as probe:
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
