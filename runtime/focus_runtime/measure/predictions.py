"""What a model predicts at every token: its loss, the most probable next tokens, and where the real one stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.measure.loss import logits_by_slab

MOST_PROBABLE = 5


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions of one pass over T tokens; entry t is for token t+1 given tokens 0 to t.

    Attributes:
        nll: (T-1,) float64 loss in nats.
        token_ids: (T-1, N) int64 the most probable tokens, most probable first.
        probabilities: (T-1, N) float32 of these.
        ranks: (T-1,) int64 rank of the real token in the whole vocabulary, from 1.
    """

    nll: NDArray[np.float64]
    token_ids: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    ranks: NDArray[np.int64]


@torch.no_grad()
def token_predictions(model: Any, hidden: Tensor, ids: Tensor, *, most_probable: int = MOST_PROBABLE) -> Predictions:
    """Predictions of one text without all logits at once.

    Args:
        model: a Hugging Face causal language model.
        hidden: (1, T, d) from `final_hidden`.
        ids: (1, T) token ids, T at least 2.
        most_probable: N tokens at most; fewer where the vocabulary is smaller.
    """
    parts: list[tuple[Tensor, ...]] = []
    for logits_of_batch, following in logits_by_slab(model, hidden, ids):
        logits = logits_of_batch[0]
        total, own = torch.logsumexp(logits, dim=-1), logits.gather(-1, following[0][:, None])
        best = logits.topk(min(most_probable, logits.shape[-1]), dim=-1)
        ranks = 1 + (logits > own).sum(dim=-1)
        values = (total - own[:, 0], best.indices, (best.values - total[:, None]).exp(), ranks)
        parts.append(tuple(value.cpu() for value in values))
    nll, token_ids, probabilities, ranks = (torch.cat(column) for column in zip(*parts, strict=True))
    return Predictions(nll.double().numpy(), token_ids.numpy(), probabilities.float().numpy(), ranks.numpy())
