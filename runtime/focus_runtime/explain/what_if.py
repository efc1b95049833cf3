"""What follows from changes made to a run by hand: the same text read again from the first changed layer on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.budget import HeadCounts, query_numbers
from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.changes import Change
from focus_runtime.composition.heads import HeadMask
from focus_runtime.composition.observe import RecordedPass, recorded_outputs, resumed_at
from focus_runtime.errors import InputError
from focus_runtime.mask.counts import gained_and_lost
from focus_runtime.measure.loss import Predictions, final_hidden, layer_shares, token_predictions
from focus_runtime.models.devices import input_device

MOST_BLOCKS = 128


@dataclass(frozen=True, slots=True)
class FocusPass:
    """What Focus decided and the model predicted in one pass over T tokens."""

    predictions: Predictions
    top_groups: Mapping[int, NDArray[np.int64]]  # by layer, (T,) the most probable group of every token
    masks: Mapping[int, tuple[HeadMask, ...]]  # by layer, the pairs that each group of its heads used

    def retained_pairs(self, layer: int) -> float:
        """Allowed pairs of a layer over all causal pairs, mean over its heads."""
        return layer_shares(self.masks[layer])[0]


@dataclass(frozen=True, slots=True)
class KeptPass:
    """A pass over (1, T) token ids without changes, kept so that a changed one starts at the first changed layer.

    Memory: T · d numbers for each layer.
    """

    ids: Tensor
    recorded: RecordedPass
    result: FocusPass


@torch.no_grad()
def keep_pass(focus: FocusModel, ids: Sequence[int]) -> KeptPass:
    """Read a text of at least 2 token ids with Focus and keep what its layers returned."""
    if len(ids) < 2:
        raise InputError("this text has no token with a prediction", expected="at least 2 tokens")
    text = torch.tensor([list(ids)], device=input_device(focus.model))
    with recorded_outputs(focus.model) as recorded:
        hidden = final_hidden(focus.model, text)
    return KeptPass(text, recorded, _result(focus, hidden, text))


@torch.no_grad()
def what_if(focus: FocusModel, kept: KeptPass, changes: Sequence[Change]) -> FocusPass:
    """The same text with changes made together, under the same centroids and settings; none gives the kept result."""
    if not changes:
        return kept.result
    first = min(min(focus.focused_layers) if change.layer is None else change.layer for change in changes)
    with focus.with_changes(changes, kept.ids.shape[1]):
        with resumed_at(focus.model, first, kept.recorded):
            hidden = final_hidden(focus.model, kept.ids)
        made = _result(focus, hidden, kept.ids)
    before, after = kept.result, {layer for layer in made.masks if layer >= first}
    return FocusPass(
        made.predictions,
        {layer: (made if layer in after else before).top_groups[layer] for layer in before.top_groups},
        {layer: (made if layer in after else before).masks[layer] for layer in before.masks},
    )


def pairs_changed(before: Sequence[HeadMask], after: Sequence[HeadMask]) -> tuple[int, NDArray[np.float64]]:
    """Pairs of one layer that a change adds and drops, in blocks: tokens of a side, and (2, N, N), mean over heads."""
    size = -(-before[0].membership.shape[1] // MOST_BLOCKS)
    counts, heads = [], 0
    apart = sorted(sum(len(mask.group.heads) for mask in masks) for masks in (before, after))
    told_apart = HeadCounts(*apart)  # query heads where either side tells them apart
    for old in before:
        for new in after:
            shared = len({*query_numbers(old.group, told_apart)} & {*query_numbers(new.group, told_apart)})
            if shared:
                counts.append(shared * gained_and_lost(_bits(old), old.rule, _bits(new), new.rule, size))
                heads += shared
    return size, np.sum(counts, axis=0) / heads


def _bits(mask: HeadMask) -> NDArray[np.int64]:
    return mask.membership[0].cpu().numpy()


def _result(focus: FocusModel, hidden: Tensor, ids: Tensor) -> FocusPass:
    tops = {
        layer: assignment.probabilities[0].argmax(dim=-1).cpu().numpy()
        for layer, assignment in focus.assignments().items()
    }
    return FocusPass(token_predictions(focus.model, hidden, ids), tops, focus.head_masks())
