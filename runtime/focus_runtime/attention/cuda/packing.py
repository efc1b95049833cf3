"""Packing tokens by group for varlen kernels: which entry stands where, and where each token's entries went.

A token belongs to up to k groups and makes one entry for each. Entries are sorted by (batch, group), stably, so each
group is a causal sequence. Nothing here waits for the device except `membership_extent`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Packing:
    """Entries of N tokens in sorted order.

    Attributes:
        token: (N k,) int64, the token of each entry.
        rank: (N k,) int64, which of the token's memberships it stands for, 0 for the lowest group.
        cu_lengths: (S + 1,) int32, first entry of each sequence; entries from the last number on are unused.
        slots: (N, k) int64, where each token's entries stand.
        held: (N, k) bool, False for unused entries; None when all are used.
    """

    token: Tensor
    rank: Tensor
    cu_lengths: Tensor
    slots: Tensor
    held: Tensor | None


@dataclass(frozen=True, slots=True)
class Extent:
    """What the host must know of memberships: K, the most groups a token has, and whether all have as many."""

    num_groups: int
    top_k: int
    uniform: bool


def popcount(x: Tensor) -> Tensor:
    """Number of set bits of non-negative int64."""
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (x * 0x0101010101010101) >> 56


def membership_extent(membership: Tensor) -> Extent:
    """Look at (B, T) memberships; one host synchronisation."""
    counts = popcount(membership)
    largest, most, least = torch.stack([membership.max(), counts.max(), counts.min()]).tolist()
    return Extent(max(1, largest.bit_length()), max(1, most), most == least)


def group_numbers(membership: Tensor, top_k: int) -> Tensor:
    """Groups of each token in rising order: (N,) bit sets -> (N, k) int64, -1 where a token has fewer."""
    numbers, rest = [], membership
    for _ in range(top_k):
        lowest = rest & -rest
        number = lowest.to(torch.float64).log2().round().clamp_min(0).to(torch.int64)  # exact: powers of two
        numbers.append(torch.where(lowest == 0, -1, number))
        rest = rest ^ lowest
    return torch.stack(numbers, dim=1)


def group_bits(membership: Tensor, num_groups: int) -> Tensor:
    """Memberships as flags: (N,) bit sets -> (N, K) bool."""
    number = torch.arange(num_groups, device=membership.device)
    return ((membership[:, None] >> number) & 1).bool()


def pack(category: Tensor, num_categories: int, *, uniform: bool) -> Packing:
    """Sort entries by category, keeping token order inside each.

    Args:
        category: (N, k) int64 from 0 to `num_categories` - 1, or -1 for an unused entry; no token twice in one.
        uniform: True promises that no entry is unused.
    """
    entries, top_k = category.numel(), category.shape[1]
    keys = category.flatten()
    if not uniform:
        keys = torch.where(keys < 0, num_categories, keys)
    # radix sort reads the key byte by byte, so fewer bytes are fewer passes
    kind = torch.uint8 if num_categories < 256 else torch.int16 if num_categories < 1 << 15 else torch.int32
    ordered, entry = torch.sort(keys.to(kind), stable=True)
    bounds = torch.arange(num_categories + 1, dtype=torch.int32, device=keys.device)
    cu_lengths = torch.searchsorted(ordered.to(torch.int32), bounds, out_int32=True)
    slots = torch.empty_like(entry).scatter_(0, entry, torch.arange(entries, device=keys.device))
    held = None if uniform else category >= 0
    return Packing(entry // top_k, entry % top_k, cu_lengths, slots.view(-1, top_k), held)


def pack_groups(membership: Tensor, extent: Extent) -> Packing:
    """One sequence per batch row and group: (B, T) bit sets."""
    numbers = group_numbers(membership.flatten(), extent.top_k)
    category = _by_batch(numbers, membership.shape, extent.num_groups)
    return pack(category, membership.shape[0] * extent.num_groups, uniform=extent.uniform)


def pack_pairs(membership: Tensor, extent: Extent) -> Packing:
    """One sequence per batch row and set of exactly two groups; tokens with another number of groups take no part."""
    numbers = group_numbers(membership.flatten(), 2)
    low, high = numbers[:, :1], numbers[:, 1:]
    pair = torch.where((low < 0) | (high < 0), -1, high * (high - 1) // 2 + low)
    num_pairs = max(1, extent.num_groups * (extent.num_groups - 1) // 2)
    category = _by_batch(pair, membership.shape, num_pairs)
    return pack(category, membership.shape[0] * num_pairs, uniform=extent.uniform)


def _by_batch(number: Tensor, shape: torch.Size, count: int) -> Tensor:
    if shape[0] == 1:
        return number
    batch = torch.arange(shape[0], device=number.device)[:, None].expand(shape).reshape(-1, 1)
    return torch.where(number < 0, -1, number + batch * count)
