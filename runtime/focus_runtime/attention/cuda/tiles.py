"""What kernels of attention do with one tile: read its rows, multiply, and continue a softmax.

Shape suffixes: m queries of a tile, n keys of a tile, d head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from focus_runtime.config import CONSTANT
from focus_runtime.gpu import aligned, alike, power_of_two, tiles_of

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
    """What queries of a head are multiplied by, which see so many tokens up to their own; see `HeadFactors`."""
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


@triton.jit(do_not_specialize=["length", "before", "furthest", "heads", "grow_first", "grow_last"])
def factors_kernel(
    Q, OUT, FACTORS, ACTS, TOKENS,
    q_batch, q_head, q_token, length, before, furthest, heads, grow_first, grow_last,
    HEAD: tl.constexpr, SIZE: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, SIZE)
    real_m, real_d = m < length, d < HEAD
    query_md = rows(Q + batch * q_batch + head * q_head, m, q_token, real_m, d, real_d).to(tl.float32)
    at_m = before + m
    visible_m = tl.minimum(at_m + 1, furthest)
    power_m = powers(FACTORS + head, ACTS + head, TOKENS + head, visible_m, at_m, grow_first, grow_last)
    place_m = (batch * length + m) * heads + head
    out_md = (query_md * power_m[:, None]).to(OUT.dtype.element_ty)
    tl.store(OUT + place_m[:, None] * HEAD + d[None, :], out_md, mask=real_m[:, None] & real_d[None, :])


ROWS, FEW_ROWS = 64, 16  # of a tile, and where there are no more
WARPS = 4


@dataclass(frozen=True, slots=True, eq=False)
class HeadFactors:
    """What queries are multiplied by: factor ** max(0, acts - tokens * clamp(i, first, last) / first / n), where i is
    the query's position and n tokens are those up to it that its layer reaches.

    Attributes:
        factors, acts, tokens: (H,) float32, factors above 0.
        growth: first and last position of the windows' growth.
    """

    factors: Tensor
    acts: Tensor
    tokens: Tensor
    growth: tuple[int, int] = CONSTANT

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """In the order that kernels take them."""
        return self.factors, self.acts, self.tokens


@dataclass(frozen=True, slots=True, eq=False)
class HeadSets:
    """What each query head of a layer sees; in a decode step also of each key head.

    Attributes:
        sets: (H,) or (G,) int32, which of several memberships is the head's.
        windows: (H,) or (G,) int32; one that no text is longer than makes it full attention.
    """

    sets: Tensor
    windows: Tensor


def multiplied_on_gpu(query: Tensor, factors: HeadFactors, total: int, furthest: int | None = None) -> Tensor:
    """Queries of the newest tokens times the factors of their heads, strided as (B, T, H, D).

    Args:
        query: (B, H, T, D), the last dimension contiguous.
        furthest: the most that n can be; None for no limit.
    """
    batch, heads, new, head_size = query.shape
    out_BTHD = query.new_empty(batch, new, heads, head_size)
    tile, size = ROWS if new > FEW_ROWS else FEW_ROWS, max(16, power_of_two(head_size))
    starts = aligned(query, *factors.tensors)
    launches = alike("factors", query.device, query.dtype, query.stride()[:3], head_size, tile, starts)
    numbers = (*query.stride()[:3], new, total - new, total if furthest is None else furthest, heads, *factors.growth)
    arguments = (query, out_BTHD, *factors.tensors, *numbers, head_size, size, tile)
    launches.run("factors", factors_kernel, (tiles_of(new, tile), heads, batch), arguments, WARPS, 1)
    return out_BTHD.transpose(1, 2)
