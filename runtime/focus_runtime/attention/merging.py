"""Attention over disjoint sets of keys, put together by logsumexp."""

from __future__ import annotations

import torch
from torch import Tensor


def merge(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Combine attention over disjoint key sets by their logsumexps, per query and head (METHOD section 4).

    Args:
        parts: (out (..., T, D), logsumexp (..., T)) pairs; -inf marks a query without keys in that set.
    """
    lses = torch.stack([lse for _, lse in parts])
    top = lses.amax(dim=0)
    weights = torch.exp(lses - top.masked_fill(top == float("-inf"), 0.0))
    total = weights.sum(dim=0)
    weights = weights / total.clamp_min(torch.finfo(total.dtype).tiny)
    out = parts[0][0] * weights[0][..., None].to(parts[0][0].dtype)
    for (part, _), weight in zip(parts[1:], weights[1:], strict=True):
        out = torch.addcmul(out, part, weight[..., None].to(part.dtype))
    return out, top + torch.log(total)
