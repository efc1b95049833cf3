"""How far the windows of a layer's query heads reach, and what share of a text lies beyond.

Shape suffixes: B batch, H query heads, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.budget import HeadCounts, HeadGroup, query_settings
from focus_runtime.config import CONSTANT


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the windows of a layer's query heads reach.

    Attributes:
        acts: (H,) 1, or 0 for a head with full attention.
        tokens: (H,) tokens within the window before it grows, the query's own among them; 0 for a head with full
            attention.
        least, most: fewest and most of these tokens among heads that have a window; infinite where none has.
        growth: first and last position of the windows' growth.
    """

    acts: Tensor
    tokens: Tensor
    least: float
    most: float
    growth: tuple[int, int] = CONSTANT

    def beyond(self, visible: int, position: int) -> Tensor:
        """Share of the tokens that lies beyond each head's window, (H,).

        Args:
            visible: tokens up to the query's own that its layer reaches.
            position: of the query.
        """
        first, last = self.growth
        grown = min(max(position, first), last) / first
        share_H = torch.sub(self.acts, self.tokens, alpha=grown / visible)
        return share_H if visible >= self.most * grown else share_H.clamp_min(0)

    def beyond_each(self, visible_BT: Tensor, position_BT: Tensor) -> Tensor:
        """The same for several queries, (B, H, T).

        Args:
            visible_BT: tokens up to each query's own that its layer reaches; at least 1.
            position_BT: of the queries.
        """
        grown_BT = position_BT.clamp(*self.growth) / self.growth[0]
        return (self.acts[:, None] - self.tokens[:, None] * (grown_BT / visible_BT)[:, None]).clamp_min(0)


def reach_of(
    groups: Sequence[HeadGroup], counts: HeadCounts, device: torch.device, growth: tuple[int, int] | None
) -> Reach:
    """The reach of a layer's heads.

    Args:
        groups: heads by setting, all of the layer's.
        counts: heads of the layer.
        device: of the queries.
        growth: the configuration's.
    """
    tokens = [0 if setting.full else setting.window + 1 for setting in query_settings(groups, counts)]
    windows = [number for number in tokens if number]
    tokens_H = torch.tensor(tokens, dtype=torch.float32, device=device)
    acts_H = (tokens_H > 0).float()
    return Reach(acts_H, tokens_H, min(windows, default=math.inf), max(windows, default=math.inf), growth or CONSTANT)
