"""Kernels of routing: groups by the causal rule with text sinks, which reads hidden states once; and groups by top-k.

Shape suffixes: t tokens of a tile, e model width, k groups.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens", "length", "first_movable"])
def route_kernel(
    HIDDEN,
    WEIGHTS,
    POTENTIAL,
    FIRST,
    KNOWN,
    PADDING,
    PROBABILITIES,
    SETS,
    FOUND,
    tokens,
    length,
    threshold,
    first_movable,
    num_groups: tl.constexpr,
    top_ks: tl.constexpr,
    num_sets: tl.constexpr,
    most: tl.constexpr,
    width: tl.constexpr,
    LOOKS: tl.constexpr,
    KNOWS: tl.constexpr,
    PADDED: tl.constexpr,
    GROUPS: tl.constexpr,
    BT: tl.constexpr,
    BE: tl.constexpr,
):
    """Probabilities, and bit sets by top-k, of which `top_ks` holds one in each of its bytes. Where it LOOKS, tokens
    like their text's first one, and those KNOWN before, belong to all groups for every k but 0."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    k = tl.arange(0, GROUPS)
    e = tl.arange(0, BE)
    real_t, real_k = t < tokens, k < num_groups
    batch_t = t // length
    score_tk = tl.zeros([BT, GROUPS], dtype=tl.float32)
    dot_t = tl.zeros([BT], dtype=tl.float32)
    square_t = tl.zeros([BT], dtype=tl.float32)
    square_first_t = tl.zeros([BT], dtype=tl.float32)
    for start in range(0, width, BE):
        inside_e = start + e < width
        hidden_te = tl.load(
            HIDDEN + t.to(tl.int64)[:, None] * width + (start + e)[None, :],
            mask=real_t[:, None] & inside_e[None, :],
            other=0.0,
        ).to(tl.float32)
        weight_ek = tl.load(
            WEIGHTS + (start + e)[:, None] * num_groups + k[None, :],
            mask=inside_e[:, None] & real_k[None, :],
            other=0.0,
        )
        score_tk = tl.dot(hidden_te, weight_ek, score_tk, input_precision="tf32x3")
        if LOOKS:
            first_te = tl.load(
                FIRST + batch_t[:, None] * width + (start + e)[None, :],
                mask=real_t[:, None] & inside_e[None, :],
                other=0.0,
            ).to(tl.float32)
            dot_t += tl.sum(hidden_te * first_te, axis=1)
            square_t += tl.sum(hidden_te * hidden_te, axis=1)
            square_first_t += tl.sum(first_te * first_te, axis=1)
    score_tk += tl.load(POTENTIAL + k, mask=real_k, other=0.0)[None, :]
    score_tk = tl.where(real_k[None, :], score_tk, float("-inf"))
    weight_tk = tl.exp(score_tk - tl.max(score_tk, axis=1)[:, None])
    share_tk = weight_tk / tl.sum(weight_tk, axis=1)[:, None]
    place_tk = t.to(tl.int64)[:, None] * num_groups + k[None, :]
    tl.store(PROBABILITIES + place_tk, share_tk, mask=real_t[:, None] & real_k[None, :])
    everywhere_t = tl.zeros([BT], dtype=tl.int64)
    if LOOKS:
        size_t = tl.maximum(tl.sqrt(square_t), 1e-8) * tl.maximum(tl.sqrt(square_first_t), 1e-8)
        movable_t = t - batch_t * length >= first_movable
        if PADDED:
            movable_t = t - batch_t * length >= first_movable + tl.load(PADDING + batch_t, mask=real_t, other=0)
        found_t = (dot_t / size_t >= threshold) & movable_t
        if KNOWS:
            found_t = found_t | (tl.load(KNOWN + t, mask=real_t, other=0).to(tl.int32) != 0)
        tl.store(FOUND + t, found_t, mask=real_t)
        everywhere_t = tl.where(found_t, all_bits(num_groups), everywhere_t)
    left_tk = tl.where(real_k[None, :], share_tk, -2.0)
    bits_t = tl.zeros([BT], dtype=tl.int64)
    for rank in tl.static_range(most + 1):
        for place in tl.static_range(num_sets):
            if (top_ks >> (8 * place)) & 255 == rank:
                own_t = bits_t
                if rank > 0:
                    own_t = own_t | everywhere_t
                tl.store(SETS + place * tokens.to(tl.int64) + t, own_t, mask=real_t)
        best_t = tl.argmax(left_tk, axis=1)  # the lower group of equals
        bits_t = bits_t | (tl.full([BT], 1, dtype=tl.int64) << best_t.to(tl.int64))
        left_tk = tl.where(k[None, :] == best_t[:, None], -1.0, left_tk)


@triton.jit
def all_bits(num_groups: tl.constexpr):
    """The bit set of all groups."""
    bits = tl.full([], -1, dtype=tl.int64)
    if num_groups < 64:
        bits = (tl.full([], 1, dtype=tl.int64) << num_groups) - 1
    return bits


@triton.jit(do_not_specialize=["tokens"])
def sets_kernel(
    PROBABILITIES,
    MEMBER,
    EVERYWHERE,
    SETS,
    tokens,
    num_groups: tl.constexpr,
    top_ks: tl.constexpr,
    num_sets: tl.constexpr,
    usual: tl.constexpr,
    most: tl.constexpr,
    ANY: tl.constexpr,
    GROUPS: tl.constexpr,
    BT: tl.constexpr,
):
    """Bit sets by top-k, of which `top_ks` holds one in each of its bytes; MEMBER are those of the usual one."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    k = tl.arange(0, GROUPS)
    real_t, real_k = t < tokens, k < num_groups
    place_tk = t.to(tl.int64)[:, None] * num_groups + k[None, :]
    left_tk = tl.load(PROBABILITIES + place_tk, mask=real_t[:, None] & real_k[None, :], other=-2.0)
    everywhere_t = tl.zeros([BT], dtype=tl.int64)
    if ANY:
        everywhere_t = tl.where(tl.load(EVERYWHERE + t, mask=real_t, other=0) != 0, all_bits(num_groups), everywhere_t)
    bits_t = tl.zeros([BT], dtype=tl.int64)
    for rank in tl.static_range(most + 1):
        for place in tl.static_range(num_sets):
            if (top_ks >> (8 * place)) & 255 == rank:
                own_t = bits_t
                if rank == usual:
                    own_t = tl.load(MEMBER + t, mask=real_t, other=0)
                if rank > 0:
                    own_t = own_t | everywhere_t
                tl.store(SETS + place * tokens.to(tl.int64) + t, own_t, mask=real_t)
        best_t = tl.argmax(left_tk, axis=1)  # the lower group of equals
        bits_t = bits_t | (tl.full([BT], 1, dtype=tl.int64) << best_t.to(tl.int64))
        left_tk = tl.where(k[None, :] == best_t[:, None], -1.0, left_tk)
