"""The pair rule of rule.py as boolean tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.mask.rule import Extent, PairRule


def allowed_pairs(
    membership_q: Tensor, membership_k: Tensor, position_q: Tensor, position_k: Tensor, rule: PairRule
) -> Tensor:
    """The hard mask between queries and keys, with positions counted from the first real token (METHOD section 3)."""
    distance = position_q[..., :, None] - position_k[..., None, :]
    near = rule.near(position_q.long())[..., :, None] if rule.grows else rule.window
    shared = (membership_q[..., :, None] & membership_k[..., None, :]) != 0
    allowed = (distance >= 0) & (shared | (distance <= near) | (position_k[..., None, :] < rule.num_sinks))
    return allowed if rule.sliding_window is None else allowed & (distance < rule.sliding_window)


def token_positions(membership: Tensor, key_padding: Tensor | None) -> Tensor:
    """Positions counted from the first real token: (B, Tk) int64; padding before it gets negative numbers."""
    count = torch.arange(membership.shape[1], device=membership.device).expand_as(membership)
    if key_padding is None:
        return count
    return count - key_padding.to(torch.int8).argmax(dim=1, keepdim=True)


def allowed_to_last_queries(
    membership: Tensor, length_q: int, rule: PairRule, key_padding: Tensor | None = None
) -> Tensor:
    """The hard mask between the last tokens of each text and all its tokens; padding is allowed to no query."""
    first = membership.shape[1] - length_q
    position = token_positions(membership, key_padding)
    allowed = allowed_pairs(membership[:, first:], membership, position[:, first:], position, rule)
    return allowed if key_padding is None else allowed & key_padding[:, None, :]


def narrow(membership: Tensor) -> Tensor:
    """The same bit sets in as few bytes as they need: comparing them is most of the mask's cost."""
    num_groups = int(membership.max()).bit_length() if int(membership.min()) >= 0 else 64
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if (1 << num_groups) - 1 <= torch.iinfo(dtype).max:
            return membership.to(dtype)
    return membership


def popcount(x: Tensor) -> Tensor:
    """Number of set bits of non-negative int64."""
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (x * 0x0101010101010101) >> 56


def membership_extent(membership: Tensor) -> Extent:
    """Look at (B, T) memberships; one host synchronisation."""
    counts = popcount(membership)
    extremes = (membership.max(), membership.min(), counts.max(), counts.min())
    largest, lowest, most, least = torch.stack(extremes).tolist()
    return Extent(64 if lowest < 0 else max(1, largest.bit_length()), max(1, most), uniform=most == least > 0)


def group_bits(membership: Tensor, num_groups: int) -> Tensor:
    """Memberships as flags: (N,) bit sets -> (N, K) bool."""
    number = torch.arange(num_groups, device=membership.device)
    return ((membership[:, None] >> number) & 1).bool()
