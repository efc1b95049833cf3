"""Kernel of exact Focus that tests every pair of a text, in one launch; pairwise.py says when it is the faster way.

Shape suffixes: m queries of a tile, n keys of a tile, d head size.
"""

from __future__ import annotations

import triton
import triton.language as tl

from focus_runtime.attention.cuda.triton_kernels.tiles import LN_2, near, powers, products, rows, softmax_step


@triton.jit
def _bits(MEMBER, n, real_n, WIDE: tl.constexpr):
    """Bit sets of tokens, none for what is no token."""
    bits_n = tl.load(MEMBER + n, mask=real_n, other=0)
    if not WIDE:
        bits_n = bits_n.to(tl.int32)
    return bits_n


@triton.jit(do_not_specialize=["window", "reach", "num_sinks", "heads"])
def pairwise_kernel(
    Q,
    K,
    V,
    OUT,
    LSE,
    MEMBER,
    SETS,
    WINDOWS,
    FACTORS,
    ACTS,
    TOKENS,
    q_batch,
    q_head,
    q_token,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    m_set,
    m_batch,
    length,
    scale,
    cap,
    window,
    reach,
    num_sinks,
    heads,
    grow_first,
    grow_last,
    share: tl.constexpr,
    HEAD: tl.constexpr,
    SIZE: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    SINK: tl.constexpr,
    WIDE: tl.constexpr,
    CAPPED: tl.constexpr,
    SLIDING: tl.constexpr,
    PER_HEAD: tl.constexpr,
    FACTORED: tl.constexpr,
    WITH_LSE: tl.constexpr,
):
    """SINK is a bit that no group has: every query has it, and of the keys the sinks do."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest first
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    MEMBER += batch * m_batch
    if PER_HEAD:
        MEMBER += tl.load(SETS + head).to(tl.int64) * m_set
        window = tl.minimum(tl.load(WINDOWS + head), length)
    q_m = tile * BM + tl.arange(0, BM)
    d = tl.arange(0, SIZE)
    real_m, real_d = q_m < length, d < HEAD
    K += batch * k_batch + (head // share) * k_head
    V += batch * v_batch + (head // share) * v_head
    query_md = rows(Q + batch * q_batch + head * q_head, q_m, q_token, real_m, d, real_d)
    if FACTORED:
        visible_m = tl.minimum(q_m + 1, reach)
        power_m = powers(FACTORS + head, ACTS + head, TOKENS + head, visible_m, q_m, grow_first, grow_last)
        query_md = (query_md.to(tl.float32) * power_m[:, None]).to(Q.dtype.element_ty)
    own_m = _bits(MEMBER, q_m, real_m, WIDE) | SINK
    near_m = near(window, q_m, reach, grow_first, grow_last)
    acc_md = tl.zeros([BM, SIZE], dtype=tl.float32)
    top_m = tl.full([BM], -1.0e30, dtype=tl.float32)
    sum_m = tl.zeros([BM], dtype=tl.float32)
    first = 0
    if SLIDING:
        first = tl.maximum(0, tile * BM - reach + 1) // BN * BN
    for start in range(first, tl.minimum(length, tile * BM + BM), BN):
        n = start + tl.arange(0, BN)
        real_n = n < length
        other_n = _bits(MEMBER, n, real_n, WIDE)
        other_n = tl.where(n < num_sinks, other_n | SINK, other_n)
        score_mn = products(query_md, rows(K, n, k_token, real_n, d, real_d), scale, cap, CAPPED)
        distance_mn = q_m[:, None] - n[None, :]
        seen_mn = (distance_mn <= near_m[:, None]) | ((own_m[:, None] & other_n[None, :]) != 0)
        seen_mn = seen_mn & (distance_mn >= 0)
        if SLIDING:
            seen_mn = seen_mn & (distance_mn < reach)
        score_mn = tl.where(seen_mn, score_mn, float("-inf"))
        value_nd = rows(V, n, v_token, real_n, d, real_d)
        acc_md, top_m, sum_m = softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    out_m = (batch * length + q_m) * heads + head
    out_md = (acc_md / sum_m[:, None]).to(OUT.dtype.element_ty)
    tl.store(OUT + out_m[:, None] * HEAD + d[None, :], out_md, mask=real_m[:, None] & real_d[None, :])
    if WITH_LSE:
        tl.store(LSE + (batch * heads + head) * length + q_m, (top_m + tl.math.log2(sum_m)) * LN_2, mask=real_m)
