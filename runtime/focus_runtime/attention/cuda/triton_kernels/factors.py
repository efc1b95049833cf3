"""Kernel that multiplies queries by their heads' factors; factors.py of composition says to what power.

Shape suffixes: m queries of a tile, d head size.
"""

from __future__ import annotations

import triton
import triton.language as tl

from focus_runtime.attention.cuda.triton_kernels.tiles import powers, rows


@triton.jit(do_not_specialize=["length", "before", "furthest", "heads", "grow_first", "grow_last"])
def factors_kernel(
    Q,
    OUT,
    FACTORS,
    ACTS,
    TOKENS,
    q_batch,
    q_head,
    q_token,
    length,
    before,
    furthest,
    heads,
    grow_first,
    grow_last,
    HEAD: tl.constexpr,
    SIZE: tl.constexpr,
    BM: tl.constexpr,
):
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
