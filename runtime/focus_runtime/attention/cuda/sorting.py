"""Tokens sorted by group on a GPU: a counting sort of one or two Triton kernels that waits for nothing.

A token makes one key entry in each of its groups. Its r-th query entry stands in its r-th lowest group only, so that a
pass over the r-th entries meets every query once. Entries of a group are in the order of the text.

Shape suffixes: B batch, T tokens, K groups, E entries of a text, L lists (keys, then queries by rank), N blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from focus_runtime.attention.cuda.triton_kernels.sorting import count_kernel, place_kernel
from focus_runtime.gpu.launch import aligned, alike, power_of_two, tiles_of
from focus_runtime.mask.extent import Extent

BLOCK_CELLS = 4096  # tokens times groups that one program of the sort holds
FEWEST_GROUPS = 8  # columns; few sizes are few kernels to compile
MOST_TOKENS = 1024  # of a block
COUNTS_AT_ONCE = 2048  # of all groups, added up at once
RECOUNT_UP_TO = 8  # blocks that every program counts itself, which saves a launch
WARPS = 4


@dataclass(frozen=True, slots=True)
class SortedTokens:
    """Entries by group, of keys and of queries.

    Attributes:
        key_token: (B, E) int32, the position of each key entry; undefined beyond the last.
        key_bits: (B, E) int32 or int64, its membership; not there with one group a token, when nobody asks.
        bounds: (L, B, K + 1) int32, first entry of each group and the end of the last: of keys, then of queries by
            rank, and where tokens may have more than k groups of those. With one group a token there are only keys:
            queries stand where the keys do.
        query_token: (L - 1, B, T) int32, the position of each query entry; that of the keys with one group a token.
        query_place: (L - 1, B, T) int32, the key entry of the same token in the same group; likewise.
    """

    key_token: Tensor
    key_bits: Tensor
    bounds: Tensor
    query_token: Tensor
    query_place: Tensor

    @property
    def one_group(self) -> bool:
        """Whether no token has more than one group."""
        return self.bounds.shape[0] == 1


def entries_of(length: int, extent: Extent) -> int:
    """Room for the key entries of a text of so many tokens: not all are used where tokens may have more groups."""
    return length * (extent.num_groups if extent.beyond else extent.top_k)


class _Plan(NamedTuple):
    """Numbers of the kernels for memberships of one shape."""

    lists: int
    grid: tuple[int, int, int]
    entries: int
    counted: bool
    count_numbers: tuple[int, ...]
    place_numbers: tuple[int, ...]


def _planned(batch: int, length: int, groups: int, top_k: int, beyond: bool) -> _Plan:
    lists = 1 if top_k == 1 and not beyond else 1 + top_k + beyond
    padded = max(FEWEST_GROUPS, power_of_two(groups))
    block = min(MOST_TOKENS, BLOCK_CELLS // padded, max(16, power_of_two(length)))
    num_blocks, entries = tiles_of(length, block), length * (groups if beyond else top_k)
    counted = num_blocks > RECOUNT_UP_TO
    chunk = max(16, COUNTS_AT_ONCE // padded)  # whatever the length: each size is another kernel to compile
    sizes = (groups, top_k, beyond, lists, block, padded)
    place = (length, entries, num_blocks, batch, *sizes, chunk, counted)
    return _Plan(lists, (num_blocks, batch, 1), entries, counted, (length, num_blocks, *sizes), place)


def sort_by_group(membership: Tensor, extent: Extent) -> SortedTokens:
    """Sort the tokens of every text by group.

    Args:
        membership: (B, T) int64 bit sets.
        extent: K and k; a token of more groups than k gives wrong results where the extent does not say so.
    """
    membership = membership.contiguous()
    (batch, length), device = membership.shape, membership.device
    groups, top_k = extent.num_groups, extent.top_k
    launches = alike("sort", device, batch, length, groups, top_k, extent.beyond, aligned(membership))
    if launches.numbers is None:
        launches.numbers = _planned(batch, length, groups, top_k, extent.beyond)
    plan: _Plan = launches.numbers
    key_token = torch.empty(batch, plan.entries, dtype=torch.int32, device=device)
    bounds = torch.empty(plan.lists, batch, groups + 1, dtype=torch.int32, device=device)
    key_bits = query_token = query_place = counts = key_token  # where they are not used
    if plan.lists > 1:
        kind = torch.int32 if groups < 32 else torch.int64
        key_bits = torch.empty(batch, plan.entries, dtype=kind, device=device)
        query_token, query_place = torch.empty(2, plan.lists - 1, batch, length, dtype=torch.int32, device=device)
    if plan.counted:
        counts = torch.empty(batch, plan.lists, groups, plan.grid[0], dtype=torch.int32, device=device)
        launches.run("count", count_kernel, plan.grid, (membership, counts, *plan.count_numbers), WARPS, 1)
    tensors = (membership, counts, key_token, key_bits, bounds, query_token, query_place)
    launches.run("place", place_kernel, plan.grid, (*tensors, *plan.place_numbers), WARPS, 1)
    return SortedTokens(key_token, key_bits, bounds, query_token, query_place)
