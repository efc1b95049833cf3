"""Packing tokens by group for varlen kernels: which entry stands where, and where each token's entries went.

A token belongs to up to k groups and makes one entry for each. Entries are sorted by (batch, group), stably, so each
group is a causal sequence. Nothing here waits for the device except `membership_extent`.

Shape suffixes: N = B * T tokens of all texts, k memberships of a token, M = N * k entries, C categories.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.mask.extent import Extent


@dataclass(frozen=True, slots=True)
class Packing:
    """Entries of N tokens in sorted order.

    Attributes:
        token: (M,) int64, the token of each entry.
        rank: (M,) int64, which of the token's memberships it stands for, 0 for the lowest group.
        cu_lengths: (S + 1,) int32, first entry of each sequence; entries from the last number on are unused.
        slots: (N, k) int64, where each token's entries stand.
        held: (N, k) bool, False for unused entries; None when all are used.
    """

    token: Tensor
    rank: Tensor
    cu_lengths: Tensor
    slots: Tensor
    held: Tensor | None


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


def group_numbers(membership: Tensor, top_k: int) -> Tensor:
    """Groups of each token in rising order: (N,) bit sets -> (N, k) int64, -1 where a token has fewer."""
    numbers, rest_N = [], membership
    for _ in range(top_k):
        lowest_N = rest_N & -rest_N
        number_N = lowest_N.to(torch.float64).log2().round().clamp_min(0).to(torch.int64)  # exact: powers of two
        numbers.append(torch.where(lowest_N == 0, -1, number_N))
        rest_N = rest_N ^ lowest_N
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
    keys_M = category.flatten()
    if not uniform:
        keys_M = torch.where(keys_M < 0, num_categories, keys_M)
    # radix sort reads the key byte by byte, so fewer bytes are fewer passes
    kind = torch.uint8 if num_categories < 256 else torch.int16 if num_categories < 1 << 15 else torch.int32
    ordered_M, entry_M = torch.sort(keys_M.to(kind), stable=True)
    bounds_C = torch.arange(num_categories + 1, dtype=torch.int32, device=keys_M.device)  # and one past the last
    cu_lengths = torch.searchsorted(ordered_M.to(torch.int32), bounds_C, out_int32=True)
    slots_M = torch.empty_like(entry_M).scatter_(0, entry_M, torch.arange(entries, device=keys_M.device))
    held_Nk = None if uniform else category >= 0
    return Packing(entry_M // top_k, entry_M % top_k, cu_lengths, slots_M.view(-1, top_k), held_Nk)


def pack_groups(membership: Tensor, extent: Extent) -> Packing:
    """One sequence per batch row and group: (B, T) bit sets."""
    numbers_Nk = group_numbers(membership.flatten(), extent.top_k)
    category_Nk = _by_batch(numbers_Nk, membership.shape, extent.num_groups)
    return pack(category_Nk, membership.shape[0] * extent.num_groups, uniform=extent.uniform)


def pack_pairs(membership: Tensor, extent: Extent) -> Packing:
    """One sequence per batch row and set of exactly two groups; tokens with another number of groups take no part."""
    numbers_N2 = group_numbers(membership.flatten(), 2)
    low_N1, high_N1 = numbers_N2[:, :1], numbers_N2[:, 1:]
    pair_N1 = torch.where((low_N1 < 0) | (high_N1 < 0), -1, high_N1 * (high_N1 - 1) // 2 + low_N1)
    num_pairs = max(1, extent.num_groups * (extent.num_groups - 1) // 2)
    category_N1 = _by_batch(pair_N1, membership.shape, num_pairs)
    return pack(category_N1, membership.shape[0] * num_pairs, uniform=extent.uniform)


def _by_batch(number_Nk: Tensor, shape: torch.Size, count: int) -> Tensor:
    """Numbers that differ between the rows of a (B, T) batch; -1 stays -1."""
    if shape[0] == 1:
        return number_Nk
    batch_N1 = torch.arange(shape[0], device=number_Nk.device)[:, None].expand(shape).reshape(-1, 1)
    return torch.where(number_Nk < 0, -1, number_Nk + batch_N1 * count)
