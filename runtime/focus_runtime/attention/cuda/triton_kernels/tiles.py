"""What kernels of attention do with one tile: read its rows, multiply, and continue a softmax.

Shape suffixes: m queries of a tile, n keys of a tile, d head size.
"""

from __future__ import annotations

import triton
import triton.language as tl

LN_2 = tl.constexpr(0.6931471805599453)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def products(query_md, key_nd, scale, cap, CAPPED: tl.constexpr):
    """Products of a tile; capped ones are in the log2 domain already."""
    score_mn = tl.dot(query_md, tl.trans(key_nd))
    if CAPPED:  # tanh by exp2; `cap` is in the log2 domain, `scale` takes products to twice the tanh's argument there
        score_mn = cap - 2.0 * cap / (tl.math.exp2(score_mn * scale) + 1.0)
    return score_mn


@triton.jit
def softmax_step(score_mn, scale, v_nd, acc_md, top_m, sum_m, CAPPED: tl.constexpr):
    """Take in one tile of products, -inf where hidden; `scale` takes them to the log2 domain of `top_m`."""
    if CAPPED:
        new_m = tl.maximum(top_m, tl.max(score_mn, 1))
        weight_mn = tl.math.exp2(score_mn - new_m[:, None])
    else:
        new_m = tl.maximum(top_m, tl.max(score_mn, 1) * scale)
        weight_mn = tl.math.exp2(score_mn * scale - new_m[:, None])
    shrink_m = tl.math.exp2(top_m - new_m)
    sum_m = sum_m * shrink_m + tl.sum(weight_mn, 1)
    acc_md = acc_md * shrink_m[:, None]
    acc_md = tl.dot(weight_mn.to(v_nd.dtype), v_nd, acc_md)
    return acc_md, new_m, sum_m


@triton.jit
def powers(FACTOR, ACTS, TOKENS, visible_m, position_m, grow_first, grow_last):
    """What queries of a head are multiplied by, which see so many tokens up to their own; factors.py says more."""
    grown_m = tl.minimum(tl.maximum(position_m, grow_first), grow_last).to(tl.float32) / grow_first
    share_m = tl.maximum(tl.load(ACTS) - tl.load(TOKENS) * grown_m / visible_m.to(tl.float32), 0.0)
    return tl.math.exp2(share_m * tl.math.log2(tl.load(FACTOR)))


@triton.jit
def near(window, position, reach, grow_first, grow_last):
    """How far back queries see every key, see PairRule; `position` is one or a tile of them.

    Kernels are compiled for the growth 1 to 1 apart, of windows that do not grow: a division less for each query.
    """
    grown = tl.minimum(tl.maximum(position, grow_first), grow_last).to(tl.int64) * window // grow_first
    return tl.minimum(grown, reach - 1).to(tl.int32)


@triton.jit
def rows(X, n, token, real_n, d, real_d):
    """Rows of a tile, zero where not real."""
    return tl.load(X + n.to(tl.int64)[:, None] * token + d[None, :], mask=real_n[:, None] & real_d[None, :], other=0.0)
