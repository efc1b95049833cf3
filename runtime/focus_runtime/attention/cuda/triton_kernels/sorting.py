"""Kernels of a counting sort of tokens by group; sorting.py says what they make.

Shape suffixes: t tokens of a block, k groups, n blocks.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
    member,
    counts,
    length,
    num_blocks,
    num_groups,
    top_k: tl.constexpr,
    BEYOND: tl.constexpr,
    LISTS: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
):
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
    member,
    counts,
    key_token,
    key_bits,
    bounds,
    query_token,
    query_place,
    length,
    entries,
    num_blocks,
    batches,
    num_groups,
    top_k: tl.constexpr,
    BEYOND: tl.constexpr,
    LISTS: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    CHUNK: tl.constexpr,
    COUNTED: tl.constexpr,
):
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
