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


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the windows of a layer's query heads reach.

    Attributes:
        acts: (H,) 1, or 0 for a head with full attention.
        tokens: (H,) tokens within the window, the query's own among them; 0 for a head with full attention.
        least, most: fewest and most of these tokens among heads that have a window; infinite where none has.
    """

    acts: Tensor
    tokens: Tensor
    least: float
    most: float

    def beyond(self, visible: int) -> Tensor:
        """Share of the tokens that lies beyond each head's window, (H,).

        Args:
            visible: tokens up to the query's own that its layer reaches.
        """
        share_H = torch.sub(self.acts, self.tokens, alpha=1 / visible)
        return share_H if visible >= self.most else share_H.clamp_min(0)

    def beyond_each(self, visible_BT: Tensor) -> Tensor:
        """The same for several queries, (B, H, T).

        Args:
            visible_BT: tokens up to each query's own; at least 1.
        """
        return (self.acts[:, None] - self.tokens[:, None] / visible_BT[:, None]).clamp_min(0)


def reach_of(groups: Sequence[HeadGroup], counts: HeadCounts, device: torch.device) -> Reach:
    """The reach of a layer's heads.

    Args:
        groups: heads by setting, all of the layer's.
        counts: heads of the layer.
        device: of the queries.
    """
    tokens = [0 if setting.full else setting.window + 1 for setting in query_settings(groups, counts)]
    windows = [number for number in tokens if number]
    tokens_H = torch.tensor(tokens, dtype=torch.float32, device=device)
    acts_H = (tokens_H > 0).float()
    return Reach(acts_H, tokens_H, min(windows, default=math.inf), max(windows, default=math.inf))
