"""Exact Focus on a GPU by testing every pair, in one launch for all heads of a layer: for short texts.

Up to some length a GPU waits for the host, which sorts tokens by group and launches a kernel for near and for far pairs
in more time than all pairs take. Forward only.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from focus_runtime.attention.clock import Stage, unmeasured
from focus_runtime.attention.cuda.grouped import NEAR_TILES
from focus_runtime.attention.cuda.tiles import LN_2, HeadFactors, HeadSets, near, powers, products, rows, softmax_step
from focus_runtime.attention.reference import Scoring
from focus_runtime.gpu import aligned, alike, power_of_two, tiles_of
from focus_runtime.mask.rule import PairRule


@triton.jit
def _bits(MEMBER, n, real_n, WIDE: tl.constexpr):
    """Bit sets of tokens, none for what is no token."""
    bits_n = tl.load(MEMBER + n, mask=real_n, other=0)
    if not WIDE:
        bits_n = bits_n.to(tl.int32)
    return bits_n


@triton.jit(do_not_specialize=["window", "reach", "num_sinks", "heads"])
def pairwise_kernel(
    Q, K, V, OUT, LSE, MEMBER, SETS, WINDOWS, FACTORS, ACTS, TOKENS,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token, m_set, m_batch, length, scale, cap,
    window, reach, num_sinks, heads, grow_first, grow_last,
    share: tl.constexpr, HEAD: tl.constexpr, SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    SINK: tl.constexpr, WIDE: tl.constexpr, CAPPED: tl.constexpr, SLIDING: tl.constexpr, PER_HEAD: tl.constexpr,
    FACTORED: tl.constexpr, WITH_LSE: tl.constexpr,
):  # fmt: skip
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


MOST_GROUPS, FEW_GROUPS = 62, 30  # of 64 bits and of 32, one of which marks sinks
# Heads of all texts times their size times T^2 up to which this took less time from launch to end (H100), for k of 1
# and of more: 2,048 and 4,096 tokens with 12 heads of 64, 1,024 and 2,048 with 32 of 128 (docs/gpu.md).
MOST_WORK = {1: 5e9, 2: 1.8e10}


def pairwise_pays(query: Tensor, num_groups: int, top_k: int) -> bool:
    """Whether to test all pairs takes less time than to leave most of them out."""
    batch, heads, length, size = query.shape
    return num_groups <= MOST_GROUPS and batch * heads * size * length**2 <= MOST_WORK[1 if top_k <= 1 else 2]


def pairwise_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    *,
    num_groups: int,
    heads: HeadSets | None = None,
    factors: HeadFactors | None = None,
    stage: Stage = unmeasured,
    lse: Tensor | None = None,
) -> Tensor:
    """Exact Focus in one kernel, for as many queries as keys and without padding.

    Args:
        membership: (S, B, T) int64 bit sets, the last dimension contiguous; the first alone is read without `heads`.
        num_groups: K, at most `MOST_GROUPS`; bits from there on must not be set.
        heads: memberships and windows of the heads; the first and the rule's when None.
        factors: by which queries are multiplied first; none when None.
    """
    shapes = (query.shape, query.stride(), key.shape, key.stride(), value.stride(), membership.stride())
    pairs = (rule.window, rule.num_sinks, rule.sliding_window, rule.growth, scoring.scale, scoring.softcap)
    starts = aligned(query, key, value, membership)
    few, kinds = num_groups <= FEW_GROUPS, (heads is not None, factors is not None, lse is not None)
    launches = alike("pairwise", query.device, query.dtype, *shapes, *pairs, few, kinds, starts)
    batch, num_heads, length, head_size = query.shape
    if launches.numbers is None:  # programs, what follows the tensors among the kernel's arguments, and tiles
        size = max(16, power_of_two(head_size))
        tiles = NEAR_TILES[max(64, size)]
        reach = length if rule.sliding_window is None else min(rule.sliding_window, length)
        strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *membership.stride()[:2])
        window, num_sinks = min(rule.window, length), min(rule.num_sinks, length)
        scale, cap = scoring.in_base_two()
        seen = (scale, cap, window, reach, num_sinks, num_heads, *rule.growth)
        sizes = (num_heads // key.shape[1], head_size, size, tiles.queries, tiles.keys)
        sink = 1 << (FEW_GROUPS if few else MOST_GROUPS)
        numbers = (*strides, length, *seen, *sizes, sink, not few, scoring.softcap is not None, reach < length, *kinds)
        launches.numbers = (tiles_of(length, tiles.queries), num_heads, batch), numbers, tiles
    grid, numbers, tiles = launches.numbers
    out_BTHD, unused = query.new_empty(batch, length, num_heads, head_size), membership
    by_head = (unused, unused) if heads is None else (heads.sets, heads.windows)
    factored = (unused, unused, unused) if factors is None else factors.tensors
    with stage("same_group"):
        place = unused if lse is None else lse
        arguments = (query, key, value, out_BTHD, place, membership, *by_head, *factored, *numbers)
        launches.run("pairwise", pairwise_kernel, grid, arguments, tiles.warps, tiles.stages)
    return out_BTHD
