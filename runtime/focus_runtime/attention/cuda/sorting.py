"""Tokens sorted by group on a GPU: a counting sort of one or two Triton kernels that waits for nothing.

A token makes one key entry in each of its groups. Its r-th query entry stands in its r-th lowest group only, so that a
pass over the r-th entries meets every query once. Entries of a group are in the order of the text.

Shape suffixes: B batch, T tokens, K groups, E entries of a text, L lists (keys, then queries by rank), N blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from focus_runtime.gpu import aligned, alike, power_of_two, tiles_of
from focus_runtime.mask.rule import Extent


@triton.jit
def _flags(bits_t, group_k, rank, top_k: tl.constexpr, BEYOND: tl.constexpr):
    """Which groups an entry list holds of each token, int32 0 or 1.

    All of them (rank 0); the `rank`-th lowest (from 1 to k); with `BEYOND` tokens of more than k groups have no such
    entries but one in the list of rank k + 1, which has but one group.
    """
    left_t = bits_t
    for step in tl.static_range(top_k - 1):
        left_t = tl.where(step + 1 < rank, left_t & (left_t - 1), left_t)
    own_t = tl.where(rank == 0, bits_t, left_t & -left_t)
    if BEYOND:
        more_t = bits_t
        for _ in tl.static_range(top_k):
            more_t = more_t & (more_t - 1)
        own_t = tl.where((rank > 0) & (more_t != 0), 0, own_t)
        own_t = tl.where(rank == top_k + 1, tl.where(more_t != 0, 1, 0).to(tl.int64), own_t)
    return ((own_t[:, None] >> group_k[None, :]) & 1).to(tl.int32)


@triton.jit(do_not_specialize=["num_blocks", "num_groups"])
def count_kernel(
    member, counts,
    length, num_blocks, num_groups,
    top_k: tl.constexpr, BEYOND: tl.constexpr, LISTS: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Members of each group in each block of tokens: counts (B, L, K, N)."""
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    token_t = block * BLOCK + tl.arange(0, BLOCK)
    group_k = tl.arange(0, GROUPS)
    bits_t = tl.load(member + batch * length + token_t, mask=token_t < length, other=0)
    for rank in tl.static_range(LISTS):
        count_k = tl.sum(_flags(bits_t, group_k, rank, top_k, BEYOND), axis=0)
        cell_k = ((batch * LISTS + rank) * num_groups + group_k) * num_blocks + block
        tl.store(counts + cell_k, count_k, mask=group_k < num_groups)


@triton.jit(do_not_specialize=["num_blocks", "batches", "num_groups"])
def place_kernel(
    member, counts, key_token, key_bits, bounds, query_token, query_place,
    length, entries, num_blocks, batches, num_groups,
    top_k: tl.constexpr, BEYOND: tl.constexpr, LISTS: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr,
    CHUNK: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    """Write every entry of a block of tokens to its place; what no earlier kernel has counted is counted here."""
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    token_t = block * BLOCK + tl.arange(0, BLOCK)
    group_k = tl.arange(0, GROUPS)
    real_k = group_k < num_groups
    bits_t = tl.load(member + batch * length + token_t, mask=token_t < length, other=0)
    key_place_tk = tl.zeros([BLOCK, GROUPS], dtype=tl.int32)
    for rank in tl.static_range(LISTS):
        earlier_k = tl.zeros([GROUPS], dtype=tl.int32)
        total_k = tl.zeros([GROUPS], dtype=tl.int32)
        if COUNTED:
            row_k = ((batch * LISTS + rank) * num_groups + group_k) * num_blocks
            for start in range(0, num_blocks, CHUNK):
                number_n = start + tl.arange(0, CHUNK)
                known = real_k[:, None] & (number_n < num_blocks)[None, :]
                count_kn = tl.load(counts + row_k[:, None] + number_n[None, :], mask=known, other=0)
                total_k += tl.sum(count_kn, axis=1)
                earlier_k += tl.sum(tl.where((number_n < block)[None, :], count_kn, 0), axis=1)
        else:
            for number in range(num_blocks):
                at_t = number * BLOCK + tl.arange(0, BLOCK)
                other_t = tl.load(member + batch * length + at_t, mask=at_t < length, other=0)
                count_k = tl.sum(_flags(other_t, group_k, rank, top_k, BEYOND), axis=0)
                total_k += count_k
                earlier_k += tl.where(number < block, count_k, 0)
        first_k = tl.cumsum(total_k, axis=0) - total_k
        if block == 0:
            bound = bounds + (rank * batches + batch) * (num_groups + 1)
            tl.store(bound + group_k, first_k, mask=real_k)
            tl.store(bound + num_groups, tl.sum(total_k, axis=0))
        flag_tk = _flags(bits_t, group_k, rank, top_k, BEYOND)
        place_tk = (first_k + earlier_k)[None, :] + tl.cumsum(flag_tk, axis=0) - flag_tk
        wide_tk = tl.broadcast_to(token_t[:, None], (BLOCK, GROUPS))
        if rank == 0:
            key_place_tk = place_tk
            tl.store(key_token + batch * entries + place_tk, wide_tk, mask=flag_tk != 0)
            if LISTS > 1:
                all_bits_tk = tl.broadcast_to(bits_t[:, None], (BLOCK, GROUPS)).to(key_bits.dtype.element_ty)
                tl.store(key_bits + batch * entries + place_tk, all_bits_tk, mask=flag_tk != 0)
        else:
            own = ((rank - 1) * batches + batch) * length
            tl.store(query_token + own + place_tk, wide_tk, mask=flag_tk != 0)
            tl.store(query_place + own + place_tk, key_place_tk, mask=flag_tk != 0)


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


def entries_of(length: int, extent: Extent) -> int:
    """Room for the key entries of a text of so many tokens: not all are used where tokens may have more groups."""
    return length * (extent.num_groups if extent.beyond else extent.top_k)


def sort_by_group(membership: Tensor, extent: Extent) -> SortedTokens:
    """Sort the tokens of every text by group; more groups of a token than the extent says give wrong results."""
    membership = membership.contiguous()
    (batch, length), device = membership.shape, membership.device
    groups, top_k, beyond = extent.num_groups, extent.top_k, extent.beyond
    lists = 1 if top_k == 1 and not beyond else 1 + top_k + beyond
    padded = max(FEWEST_GROUPS, power_of_two(groups))
    block = min(MOST_TOKENS, BLOCK_CELLS // padded, max(16, power_of_two(length)))
    num_blocks, entries = tiles_of(length, block), entries_of(length, extent)
    sizes, grid = (groups, top_k, beyond, lists, block, padded), (num_blocks, batch, 1)
    launches = alike("sort", device, batch, length, groups, top_k, beyond, aligned(membership))
    key_token = torch.empty(batch, entries, dtype=torch.int32, device=device)
    bounds = torch.empty(lists, batch, groups + 1, dtype=torch.int32, device=device)
    key_bits = query_token = query_place = counts = key_token  # where they are not used
    if lists > 1:
        kind = torch.int32 if groups < 32 else torch.int64
        key_bits = torch.empty(batch, entries, dtype=kind, device=device)
        query_token, query_place = torch.empty(2, lists - 1, batch, length, dtype=torch.int32, device=device)
    counted = num_blocks > RECOUNT_UP_TO
    if counted:
        counts = torch.empty(batch, lists, groups, num_blocks, dtype=torch.int32, device=device)
        launches.run("count", count_kernel, grid, (membership, counts, length, num_blocks, *sizes), WARPS, 1)
    chunk = max(16, COUNTS_AT_ONCE // padded)  # whatever the length: each size is another kernel to compile
    tensors = (membership, counts, key_token, key_bits, bounds, query_token, query_place)
    arguments = (*tensors, length, entries, num_blocks, batch, *sizes, chunk, counted)
    launches.run("place", place_kernel, grid, arguments, WARPS, 1)
    return SortedTokens(key_token, key_bits, bounds, query_token, query_place)
