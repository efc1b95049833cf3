"""Scoring: how the product of a query and a key becomes a logit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the product of a query and a key becomes a logit.

    Attributes:
        scale: factor on the product.
        softcap: logits become softcap * tanh(logits / softcap); None for no cap.
    """

    scale: float
    softcap: float | None = None

    def in_base_two(self) -> tuple[float, float]:
        """Factor on the product, and cap, of logits for powers of two.

        With a cap the factor gives twice the argument of tanh; the cap is 0 where there is none.
        """
        if self.softcap is None:
            return self.scale * LOG2_E, 0.0
        return self.scale * LOG2_E * 2 / self.softcap, self.softcap * LOG2_E

    def capped(self, scores: Tensor) -> Tensor:
        """Logits of scores that are scaled already, any shape."""
        if self.softcap is None:
            return scores
        return self.softcap * torch.tanh(scores / self.softcap)
