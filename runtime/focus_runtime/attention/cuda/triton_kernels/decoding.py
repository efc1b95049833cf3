"""Kernels of Focus for one new token; decoding.py says how they go together.

Shape suffixes: r query heads of a key head, n keys of a tile, d head size, c chunks.
"""

from __future__ import annotations

import triton
import triton.language as tl

from focus_runtime.attention.cuda.triton_kernels.tiles import LN_2, near, products, rows, softmax_step


@triton.jit(do_not_specialize=["lses", "length", "tiles", "window", "num_sinks", "heads"])
def chunk_kernel(
    Q,
    K,
    V,
    MEMBER,
    SETS,
    WINDOWS,
    PART,
    lses,
    q_batch,
    q_head,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    member_set,
    member_batch,
    length,
    tiles,
    scale,
    cap,
    window,
    num_sinks,
    heads,
    grow_first,
    grow_last,
    share: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD: tl.constexpr,
    SIZE: tl.constexpr,
    BN: tl.constexpr,
    CAPPED: tl.constexpr,
    APART: tl.constexpr,
):
    """One stretch of keys for the query heads of a key head; APART: 0 one setting, 1 by key head, 2 by query head.

    Logsumexps are at `lses` of PART, behind all parts."""
    chunk, kv_head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    chunks = tl.num_programs(0)
    r, d = tl.arange(0, ROWS), tl.arange(0, SIZE)
    real_r, real_d = r < share, d < HEAD
    head_r = kv_head * share + r
    query_rd = rows(Q + batch * q_batch, head_r, q_head, real_r, d, real_d)
    K += batch * k_batch + kv_head * k_head
    V += batch * v_batch + kv_head * v_head
    MEMBER += batch * member_batch
    if APART == 1:
        MEMBER += tl.load(SETS + kv_head).to(tl.int64) * member_set
        window = tl.minimum(tl.load(WINDOWS + kv_head), length)
    if APART == 2:
        set_r = tl.load(SETS + head_r, mask=real_r, other=0).to(tl.int64) * member_set
        window_r = tl.minimum(tl.load(WINDOWS + head_r, mask=real_r, other=0), length)
        nearest_r = length - 1 - near(window_r, length - 1, length, grow_first, grow_last)
        own_r = tl.load(MEMBER + set_r + length - 1)
    else:
        own = tl.load(MEMBER + length - 1)
        nearest = length - 1 - near(window, length - 1, length, grow_first, grow_last)
    acc_rd = tl.zeros([ROWS, SIZE], dtype=tl.float32)
    top_r = tl.full([ROWS], -1.0e30, dtype=tl.float32)
    sum_r = tl.zeros([ROWS], dtype=tl.float32)
    for tile in range(chunk * tiles, chunk * tiles + tiles):
        n = tile * BN + tl.arange(0, BN)
        inside_n = n < length
        if APART == 2:
            bits_rn = tl.load(MEMBER + set_r[:, None] + n[None, :], mask=real_r[:, None] & inside_n[None, :], other=0)
            near_rn = (n[None, :] >= nearest_r[:, None]) | (n < num_sinks)[None, :]
            seen_rn = real_r[:, None] & inside_n[None, :] & (((bits_rn & own_r[:, None]) != 0) | near_rn)
            seen_n = tl.max(seen_rn.to(tl.int32), axis=0) > 0
        else:
            bits_n = tl.load(MEMBER + n, mask=inside_n, other=0)
            seen_n = inside_n & (((bits_n & own) != 0) | (n >= nearest) | (n < num_sinks))
            seen_rn = seen_n[None, :]
        key_nd, value_nd = rows(K, n, k_token, seen_n, d, real_d), rows(V, n, v_token, seen_n, d, real_d)
        score_rn = products(query_rd, key_nd, scale, cap, CAPPED)
        score_rn = tl.where(seen_rn, score_rn, float("-inf"))
        acc_rd, top_r, sum_r = softmax_step(score_rn, scale, value_nd, acc_rd, top_r, sum_r, CAPPED)
    empty_r = sum_r == 0.0
    lse_r = tl.where(empty_r, float("-inf"), top_r + tl.math.log2(tl.where(empty_r, 1.0, sum_r)))
    part_r = (batch * heads + head_r) * chunks + chunk
    part_rd = acc_rd / tl.where(empty_r, 1.0, sum_r)[:, None]
    tl.store(PART + part_r[:, None] * SIZE + d[None, :], part_rd, mask=real_r[:, None])
    tl.store(PART + lses + part_r, lse_r, mask=real_r)


@triton.jit(do_not_specialize=["lses", "heads", "chunks"])
def join_kernel(
    PART,
    OUT,
    lses,
    heads,
    chunks,
    HEAD: tl.constexpr,
    SIZE: tl.constexpr,
    CHUNKS_: tl.constexpr,
):
    """The logsumexp of a head goes behind those of all its parts."""
    whole = lses + tl.num_programs(1) * heads * chunks
    row = tl.program_id(1).to(tl.int64) * heads + tl.program_id(0)
    c, d = tl.arange(0, CHUNKS_), tl.arange(0, SIZE)
    lse_c = tl.load(PART + lses + row * chunks + c, mask=c < chunks, other=float("-inf"))
    top = tl.max(lse_c, axis=0)
    empty = top == float("-inf")
    weight_c = tl.math.exp2(lse_c - tl.where(empty, 0.0, top))
    total = tl.where(empty, 1.0, tl.sum(weight_c, axis=0))
    part_cd = tl.load(PART + (row * chunks + c)[:, None] * SIZE + d[None, :], mask=(c < chunks)[:, None], other=0.0)
    out_d = tl.sum(part_cd * weight_c[:, None], axis=0) / total
    tl.store(OUT + row * HEAD + d, out_d.to(OUT.dtype.element_ty), mask=d < HEAD)
    tl.store(PART + whole + row, tl.where(empty, float("-inf"), (top + tl.math.log2(total)) * LN_2))
