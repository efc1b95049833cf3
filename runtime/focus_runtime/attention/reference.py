"""The dense oracle: plain torch, any device, any k. Slow and O(T^2) on purpose; fast paths are tested against it."""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.mask.rule import allowed_pairs


def token_positions(membership: Tensor, key_padding: Tensor | None) -> Tensor:
    """Positions counted from the first real token: (B, Tk) int64; padding before it gets negative numbers."""
    count = torch.arange(membership.shape[1], device=membership.device).expand_as(membership)
    if key_padding is None:
        return count
    return count - key_padding.to(torch.int8).argmax(dim=1, keepdim=True)


def attend(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Softmax attention over the allowed pairs in the inputs' dtype.

    Args:
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D); allowed: (B, 1, Tq, Tk) bool.

    Returns:
        out (B, Hq, Tq, D), zero where a query has no key; logsumexp (B, Hq, Tq), -inf there.
    """
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    scores = query @ key.transpose(-1, -2) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~allowed, float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0.0)[..., None])
    return weights @ value, lse


def reference_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    *,
    window: int,
    num_sinks: int = 0,
    key_padding: Tensor | None = None,
    scale: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention by its definition (METHOD section 3). Shapes as in `focus_attention`."""
    position = token_positions(membership, key_padding)
    first = key.shape[2] - query.shape[2]
    allowed = allowed_pairs(membership[:, first:], membership, position[:, first:], position, window, num_sinks)
    if key_padding is not None:
        allowed = allowed & key_padding[:, None, :]
    return attend(query, key, value, allowed[:, None], scale, softcap)
