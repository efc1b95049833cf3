"""Attention over disjoint sets of keys, put together by logsumexp.

Shape suffixes: P parts, T tokens, D head size; any dimensions before them, such as batch and heads, are "...".
"""

from __future__ import annotations

import torch
from torch import Tensor


def merge(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Combine attention over disjoint key sets by their logsumexps, per query and head (METHOD section 4).

    Args:
        parts: (out (..., T, D), logsumexp (..., T)) pairs; -inf marks a query without keys in that set.

    Returns:
        out (..., T, D) and logsumexp (..., T) of the union.
    """
    lses_PT = torch.stack([lse_T for _, lse_T in parts])
    top_T = lses_PT.amax(dim=0)
    weights_PT = torch.exp(lses_PT - top_T.masked_fill(top_T == float("-inf"), 0.0))
    total_T = weights_PT.sum(dim=0)
    weights_PT = weights_PT / total_T.clamp_min(torch.finfo(total_T.dtype).tiny)
    out_TD = parts[0][0] * weights_PT[0][..., None].to(parts[0][0].dtype)
    for (part_TD, _), weight_T in zip(parts[1:], weights_PT[1:], strict=True):
        out_TD = torch.addcmul(out_TD, part_TD, weight_T[..., None].to(part_TD.dtype))
    return out_TD, top_T + torch.log(total_T)


def beside_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """The same attention where one more logit of each head, that of its learned sink, takes its share of the weights.

    Args:
        out: (B, H, Q, D).
        lse: (B, H, Q) logsumexp of the logits.
        sinks: (H,) logits of the sinks.
    """
    share_BHQ = torch.sigmoid(lse.float() - sinks.float()[:, None])
    return (out * share_BHQ[..., None]).to(out.dtype)
