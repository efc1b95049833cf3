"""How even the groups of a training step were, and how many pairs the mask of later use keeps."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from focus_runtime.composition.attach import FocusModel
from focus_runtime.config import FocusConfig
from focus_runtime.fit.loop import Shares
from focus_runtime.mask.dense import allowed_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.loss import dominance

ROWS_COUNTED = 1024  # query rows of which a step counts the kept pairs


@torch.no_grad()
def group_shares(focus: FocusModel, inference: FocusConfig) -> Shares:
    """Dominance, its mean and largest over layers, and the pairs that the mask of later use retains with these groups.

    Args:
        focus: the composed model, after a pass and still at its settings.
        inference: settings of later use, which may have another window than the pass had.
    """
    masks = focus.head_masks(inference)
    shares, kept = [], []
    for index, assignment in focus.assignments().items():
        shares.append(dominance(assignment.probabilities))
        by_head = [retained_pairs(mask.membership[0], mask.rule) for mask in masks[index]]
        kept.append(np.average(by_head, weights=[len(mask.group.heads) for mask in masks[index]]))
    return float(np.mean(shares)), max(shares), float(np.mean(kept))


def retained_pairs(membership: Tensor, rule: PairRule) -> float:
    """Share of causal pairs that the hard mask keeps, from 1,024 evenly spaced query rows of a longer text.

    Args:
        membership: (T,) K-bit integers.
        rule: window, sinks and the layer's own sliding window.
    """
    length = membership.shape[0]
    count = min(length, ROWS_COUNTED)
    position = torch.arange(length, device=membership.device)
    rows = position if count == length else torch.linspace(0, length - 1, count, device=membership.device).long()
    allowed = allowed_pairs(membership[rows], membership, rows, position, rule)
    return allowed.sum().item() / (rows + 1).sum().item()
