"""Losses of many sequences under one setting, kept apart per sequence so that settings can be compared in pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.compose import FocusModel
from focus_runtime.measure import dominance, final_hidden, pair_shares, token_nll


@dataclass(frozen=True, slots=True)
class Scores:
    """What one setting gave on a fixed list of sequences.

    Attributes:
        nll: (N,) float64, mean negative log-likelihood of every sequence, nats per token.
        scored: (N,) int64, tokens scored in each.
        dominance: (L,) share of tokens whose most probable group is the largest, by focused layer; empty without Focus.
        retained_pairs: (L,) allowed pairs over causal pairs.
        distant_kept: (L,) of the pairs beyond window and sinks, the share kept.
    """

    nll: NDArray[np.float64]
    scored: NDArray[np.int64]
    dominance: NDArray[np.float64]
    retained_pairs: NDArray[np.float64]
    distant_kept: NDArray[np.float64]

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood over all scored tokens."""
        return math.exp(float(np.average(self.nll, weights=self.scored)))


@torch.no_grad()
def score(model: Any, sequences: Tensor) -> Scores:
    """Score (N, T) sequences one at a time.

    Args:
        model: a Hugging Face causal language model as it is, or what `compose` returned (then under Focus).
        sequences: token ids.
    """
    focus = model if isinstance(model, FocusModel) else None
    network = model.model if focus is not None else model
    device = next(network.parameters()).device
    losses, counts = [], []
    shares: dict[int, list[tuple[float, float, float]]] = {}
    for row in sequences.split(1):
        ids = row.to(device)
        nll = token_nll(network, final_hidden(network, ids), ids).double()
        losses.append(nll.mean().item())
        counts.append(nll.numel())
        for index, assignment in (focus.assignments() if focus is not None else {}).items():
            assert focus is not None
            membership = assignment.membership[0].cpu().numpy()
            kept = pair_shares(membership, focus.config.window, focus.config.num_sinks)
            shares.setdefault(index, []).append((dominance(assignment.probabilities), *kept))
    columns = np.array([np.mean(rows, axis=0) for _, rows in sorted(shares.items())]).reshape(-1, 3).T
    return Scores(np.array(losses), np.array(counts), columns[0], columns[1], columns[2])
