"""Kernel of the causal rule: scores, probabilities and groups from hidden states read once.

Shape suffixes: t tokens of a tile, e model width, k groups.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens"])
def route_kernel(
    HIDDEN,
    WEIGHTS,
    POTENTIAL,
    PROBABILITIES,
    MEMBER,
    tokens,
    num_groups: tl.constexpr,
    top_k: tl.constexpr,
    width: tl.constexpr,
    GROUPS: tl.constexpr,
    BT: tl.constexpr,
    BE: tl.constexpr,
):
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    k = tl.arange(0, GROUPS)
    e = tl.arange(0, BE)
    real_t, real_k = t < tokens, k < num_groups
    score_tk = tl.zeros([BT, GROUPS], dtype=tl.float32)
    for start in range(0, width, BE):
        inside_e = start + e < width
        hidden_te = tl.load(
            HIDDEN + t.to(tl.int64)[:, None] * width + (start + e)[None, :],
            mask=real_t[:, None] & inside_e[None, :],
            other=0.0,
        )
        weight_ek = tl.load(
            WEIGHTS + (start + e)[:, None] * num_groups + k[None, :],
            mask=inside_e[:, None] & real_k[None, :],
            other=0.0,
        )
        score_tk = tl.dot(hidden_te.to(tl.float32), weight_ek, score_tk, input_precision="tf32x3")
    score_tk += tl.load(POTENTIAL + k, mask=real_k, other=0.0)[None, :]
    score_tk = tl.where(real_k[None, :], score_tk, float("-inf"))
    weight_tk = tl.exp(score_tk - tl.max(score_tk, axis=1)[:, None])
    share_tk = weight_tk / tl.sum(weight_tk, axis=1)[:, None]
    place_tk = t.to(tl.int64)[:, None] * num_groups + k[None, :]
    tl.store(PROBABILITIES + place_tk, share_tk, mask=real_t[:, None] & real_k[None, :])
    left_tk = tl.where(real_k[None, :], share_tk, -2.0)
    bits_t = tl.zeros([BT], dtype=tl.int64)
    for _ in tl.static_range(top_k):
        best_t = tl.argmax(left_tk, axis=1)  # the lower group of equals
        bits_t = bits_t | (tl.full([BT], 1, dtype=tl.int64) << best_t.to(tl.int64))
        left_tk = tl.where(k[None, :] == best_t[:, None], -1.0, left_tk)
    tl.store(MEMBER + t, bits_t, mask=real_t)
