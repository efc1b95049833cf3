"""Longformer: a sliding window and a few global tokens (Beltagy et al. 2020, arXiv 2004.05150), causal.

The first tokens are global: read by everything after them, which is window plus sinks. The original gives global tokens
projections of their own; a frozen model has none, so they use the model's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paper.methods.base import Call, Method


@dataclass(frozen=True, kw_only=True, slots=True)
class Longformer(Method):
    """Pairs with i - j <= `window`, and pairs whose key is one of the first `num_globals` tokens.

    Time and memory grow with T times the window.
    """

    window: int = 128
    num_globals: int = 4

    def attend(self, call: Call) -> Tensor:
        device, outs = call.query.device, []
        for rows in call.blocks():
            first = max(0, rows.start - self.window)
            far = torch.arange(min(self.num_globals, first), device=device)
            keys = torch.cat([far, torch.arange(first, rows.stop, device=device)])
            distance = call.distance(rows, keys)
            allowed = (distance >= 0) & ((distance <= self.window) | (keys < self.num_globals))
            outs.append(call.over_pairs(rows, allowed[None, None], keys))
        return torch.cat(outs, dim=2)
