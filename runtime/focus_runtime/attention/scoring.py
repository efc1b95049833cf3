"""Scoring: how the product of a query and a key becomes a logit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the product of a query and a key becomes a logit.

    Attributes:
        scale: factor on the product.
        softcap: logits become softcap * tanh(logits / softcap); None for no cap.
    """

    scale: float
    softcap: float | None = None

    def capped(self, scores: Tensor) -> Tensor:
        """Logits of scores that are scaled already, any shape."""
        if self.softcap is None:
            return scores
        return self.softcap * torch.tanh(scores / self.softcap)
