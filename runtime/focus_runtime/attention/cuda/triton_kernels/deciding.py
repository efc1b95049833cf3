"""Kernel that decides the groups of a decode step's new token, and multiplies its queries by their heads' factors.

Shape suffixes: e model width, k groups, d head size.
"""

from __future__ import annotations

import triton
import triton.language as tl

from focus_runtime.attention.cuda.triton_kernels.tiles import powers
from focus_runtime.routing.route_kernel import all_bits


@triton.jit(do_not_specialize=["set_stride", "place", "grow_first", "grow_last"])
def decide_kernel(
    HIDDEN,
    WEIGHTS,
    POTENTIAL,
    FIRST,
    KNOWN,
    PROBABILITIES,
    SETS,
    FOUND,
    Q,
    Q_OUT,
    FACTORS,
    ACTS,
    TOKENS,
    q_head,
    set_stride,
    place,
    threshold,
    grow_first,
    grow_last,
    num_groups: tl.constexpr,
    top_ks: tl.constexpr,
    num_sets: tl.constexpr,
    most: tl.constexpr,
    width: tl.constexpr,
    LOOKS: tl.constexpr,
    KNOWS: tl.constexpr,
    FACTORED: tl.constexpr,
    GROUPS: tl.constexpr,
    BE: tl.constexpr,
    HEAD: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Program 0 decides, program h + 1 multiplies head h; `top_ks` holds a k in each of its bytes."""
    head = tl.program_id(0) - 1
    if head >= 0:
        if FACTORED:
            d = tl.arange(0, SIZE)
            power = powers(FACTORS + head, ACTS + head, TOKENS + head, place + 1, place, grow_first, grow_last)
            query_d = tl.load(Q + head * q_head + d, mask=d < HEAD, other=0.0).to(tl.float32)
            tl.store(Q_OUT + head * HEAD + d, (query_d * power).to(Q_OUT.dtype.element_ty), mask=d < HEAD)
        return
    e, k = tl.arange(0, BE), tl.arange(0, GROUPS)
    real_k = k < num_groups
    score_k = tl.zeros([GROUPS], dtype=tl.float32)
    dot = 0.0
    square = 0.0
    square_first = 0.0
    for start in range(0, width, BE):
        inside_e = start + e < width
        hidden_e = tl.load(HIDDEN + start + e, mask=inside_e, other=0.0).to(tl.float32)
        weight_ek = tl.load(
            WEIGHTS + (start + e)[:, None] * num_groups + k[None, :],
            mask=inside_e[:, None] & real_k[None, :],
            other=0.0,
        )
        score_k += tl.sum(hidden_e[:, None] * weight_ek, axis=0)
        if LOOKS:
            first_e = tl.load(FIRST + start + e, mask=inside_e, other=0.0).to(tl.float32)
            dot += tl.sum(hidden_e * first_e, axis=0)
            square += tl.sum(hidden_e * hidden_e, axis=0)
            square_first += tl.sum(first_e * first_e, axis=0)
    score_k += tl.load(POTENTIAL + k, mask=real_k, other=0.0)
    score_k = tl.where(real_k, score_k, float("-inf"))
    weight_k = tl.exp(score_k - tl.max(score_k, axis=0))
    share_k = weight_k / tl.sum(weight_k, axis=0)
    tl.store(PROBABILITIES + k, share_k, mask=real_k)
    everywhere = tl.zeros([], dtype=tl.int64)
    if KNOWS:
        everywhere = tl.where(tl.load(KNOWN).to(tl.int32) != 0, all_bits(num_groups), everywhere)
    if LOOKS:
        length = tl.maximum(tl.sqrt(square), 1e-8) * tl.maximum(tl.sqrt(square_first), 1e-8)
        everywhere = tl.where(dot / length >= threshold, all_bits(num_groups), everywhere)
        tl.store(FOUND, everywhere != 0)
    left_k = tl.where(real_k, share_k, -2.0)
    bits = tl.zeros([], dtype=tl.int64)
    for rank in tl.static_range(most + 1):
        for number in tl.static_range(num_sets):
            if (top_ks >> (8 * number)) & 255 == rank:
                own = bits
                if rank > 0:
                    own = own | everywhere
                tl.store(SETS + number * set_stride.to(tl.int64) + place, own)
        best = tl.argmax(left_k, axis=0)  # the lower group of equals
        bits = bits | (tl.full([], 1, dtype=tl.int64) << best.to(tl.int64))
        left_k = tl.where(k == best, -1.0, left_k)
