"""Whether hard groups stay balanced on text that was not calibrated on: by layer and by place in the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids
from paper.studies.rows import Row, variant

LIMIT = 1.5  # times 1/K: above it the mask keeps so many pairs that perplexity says little


def group_balance(
    model: Any,
    centroids: Centroids,
    sequences: Tensor,
    training: Tensor | None = None,
    *,
    blocks: int = 4,
    **settings: Any,
) -> list[Row]:
    """Group sizes over (N, T) held-out sequences, before and after balancing the potentials on training text.

    Args:
        model: the frozen model, Focus not composed; centroids: left as they are.
        sequences: (N, T) token ids of held-out text.
        training: (M, T') token ids for `calibrate_potentials`; without them there are rows for "before" only.
        blocks: blocks of text positions in each sequence.
        settings: settings of `FocusConfig` that differ from the centroids' own.

    Returns:
        One row for each layer, and for "before" and "after": `dominance` over all tokens (share of the largest group),
        `dominance_of_sequences` (the mean over sequences of their own), `dominance_by_block` (share of the largest
        group of each block, which small blocks push up), `group_shares` (K shares), `exceeds` (dominance over 1.5/K).

    Raises:
        InputError: blocks is not between 1 and T.
    """
    if not 1 <= blocks <= sequences.shape[1]:
        raise InputError(f"blocks is {blocks}", expected=f"a number between 1 and {sequences.shape[1]}")
    rows = _rows(model, variant(centroids, **settings), sequences, blocks, "before")
    if training is not None:
        balanced = calibrate_potentials(model, variant(centroids, **settings), training)
        rows += _rows(model, balanced, sequences, blocks, "after")
    return rows


@torch.no_grad()
def _rows(model: Any, centroids: Centroids, sequences: Tensor, blocks: int, when: str) -> list[Row]:
    groups, device = centroids.config.num_groups, input_device(model)
    top: dict[int, list[NDArray[np.int64]]] = {}
    focus = compose(model, centroids)
    try:
        for ids in sequences.split(1):
            final_hidden(model, ids.to(device))
            for index, assignment in focus.assignments().items():
                top.setdefault(index, []).append(assignment.probabilities[0].argmax(dim=-1).cpu().numpy())
    finally:
        focus.detach()
    return [{"layer": index, "when": when, **_sizes(np.stack(tops), groups, blocks)} for index, tops in top.items()]


def _sizes(top: NDArray[np.int64], groups: int, blocks: int) -> Row:
    """Dominance of (N, T) most probable groups."""
    shares = np.bincount(top.ravel(), minlength=groups) / top.size
    parts = np.array_split(top, blocks, axis=1)
    return {
        "dominance": float(shares.max()),
        "dominance_of_sequences": float(np.mean([np.bincount(row).max() / row.size for row in top])),
        "dominance_by_block": [float(np.bincount(part.ravel()).max() / part.size) for part in parts],
        "group_shares": shares.tolist(),
        "exceeds": bool(shares.max() > LIMIT / groups),
    }
