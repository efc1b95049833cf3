"""Focus for one new token on a GPU: keys in chunks side by side, read only where the query may look.

`_chunk_kernel` computes one chunk of keys for the query heads of one key head, `_join_kernel` joins the chunks by their
logsumexps. Nothing waits for the device, so a decode step can be one CUDA graph.

Shape suffixes: r query heads of a key head, n keys of a tile, d head size, c chunks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from focus_runtime.attention.cuda.launch import launch
from focus_runtime.attention.scoring import Scoring
from focus_runtime.mask.rule import PairRule

LOG2_E = 1.4426950408889634
LN_2 = tl.constexpr(0.6931471805599453)
FEWEST_ROWS = 16  # of a matrix product
KEYS = 64  # of a tile
CHUNKS = 512  # programs over all key heads and texts, about: enough to fill a large GPU
WARPS, STAGES = 4, 2


@triton.jit(do_not_specialize=["length", "tiles", "window", "num_sinks", "heads"])
def _chunk_kernel(
    Q,
    K,
    V,
    MEMBER,
    PART,
    PART_LSE,
    q_batch,
    q_head,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    member_batch,
    length,
    tiles,
    scale,
    cap,
    window,
    num_sinks,
    heads,
    share: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD: tl.constexpr,
    SIZE: tl.constexpr,
    BN: tl.constexpr,
    CAPPED: tl.constexpr,
):
    chunk, kv_head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    chunks = tl.num_programs(0)
    r, d = tl.arange(0, ROWS), tl.arange(0, SIZE)
    real_r, real_d = r < share, d < HEAD
    head_r = kv_head * share + r
    query_rd = tl.load(
        Q + batch * q_batch + head_r[:, None] * q_head + d[None, :], mask=real_r[:, None] & real_d[None, :], other=0.0
    )
    K += batch * k_batch + kv_head * k_head
    V += batch * v_batch + kv_head * v_head
    MEMBER += batch * member_batch
    own = tl.load(MEMBER + length - 1)
    acc_rd = tl.zeros([ROWS, SIZE], dtype=tl.float32)
    top_r = tl.full([ROWS], -1.0e30, dtype=tl.float32)
    sum_r = tl.zeros([ROWS], dtype=tl.float32)
    for tile in range(chunk * tiles, chunk * tiles + tiles):
        n = tile * BN + tl.arange(0, BN)
        inside_n = n < length
        bits_n = tl.load(MEMBER + n, mask=inside_n, other=0)
        seen_n = inside_n & (((bits_n & own) != 0) | (n >= length - 1 - window) | (n < num_sinks))
        wide_n = n.to(tl.int64)
        at_nd = seen_n[:, None] & real_d[None, :]
        key_nd = tl.load(K + wide_n[:, None] * k_token + d[None, :], mask=at_nd, other=0.0)
        value_nd = tl.load(V + wide_n[:, None] * v_token + d[None, :], mask=at_nd, other=0.0)
        score_rn = tl.dot(query_rd, tl.trans(key_nd)) * scale
        if CAPPED:  # tanh by exp2
            score_rn = cap - 2.0 * cap / (tl.math.exp2(score_rn) + 1.0)
        score_rn = tl.where(seen_n[None, :], score_rn, float("-inf"))
        new_r = tl.maximum(top_r, tl.max(score_rn, 1))
        weight_rn = tl.math.exp2(score_rn - new_r[:, None])
        shrink_r = tl.math.exp2(top_r - new_r)
        sum_r = sum_r * shrink_r + tl.sum(weight_rn, 1)
        acc_rd = tl.dot(weight_rn.to(value_nd.dtype), value_nd, acc_rd * shrink_r[:, None])
        top_r = new_r
    empty_r = sum_r == 0.0
    lse_r = tl.where(empty_r, float("-inf"), top_r + tl.math.log2(tl.where(empty_r, 1.0, sum_r)))
    part_r = (batch * heads + head_r) * chunks + chunk
    part_rd = acc_rd / tl.where(empty_r, 1.0, sum_r)[:, None]
    tl.store(PART + part_r[:, None] * SIZE + d[None, :], part_rd, mask=real_r[:, None])
    tl.store(PART_LSE + part_r, lse_r, mask=real_r)


@triton.jit(do_not_specialize=["heads", "chunks"])
def _join_kernel(
    PART, PART_LSE, OUT, LSE, heads, chunks, HEAD: tl.constexpr, SIZE: tl.constexpr, CHUNKS_: tl.constexpr
):
    row = tl.program_id(1).to(tl.int64) * heads + tl.program_id(0)
    c, d = tl.arange(0, CHUNKS_), tl.arange(0, SIZE)
    lse_c = tl.load(PART_LSE + row * chunks + c, mask=c < chunks, other=float("-inf"))
    top = tl.max(lse_c, axis=0)
    empty = top == float("-inf")
    weight_c = tl.math.exp2(lse_c - tl.where(empty, 0.0, top))
    total = tl.where(empty, 1.0, tl.sum(weight_c, axis=0))
    part_cd = tl.load(PART + (row * chunks + c)[:, None] * SIZE + d[None, :], mask=(c < chunks)[:, None], other=0.0)
    out_d = tl.sum(part_cd * weight_c[:, None], axis=0) / total
    tl.store(OUT + row * HEAD + d, out_d.to(OUT.dtype.element_ty), mask=d < HEAD)
    tl.store(LSE + row, tl.where(empty, float("-inf"), (top + tl.math.log2(total)) * LN_2))


def decode_on_gpu(
    query: Tensor, key: Tensor, value: Tensor, membership: Tensor, rule: PairRule, scoring: Scoring
) -> tuple[Tensor, Tensor]:
    """Focus attention of the newest token.

    Args:
        query: (B, H, 1, D) in half precision; key, value: (B, G, T, D); the last dimension contiguous.
        membership: (B, T) int64 bit sets.
        rule: window and sinks.
        scoring: scale and softcap.

    Returns:
        out (B, H, 1, D), zero where the query has no key; logsumexp (B, H, 1) fp32, -inf there.
    """
    batch, heads, _, head_size = query.shape
    kv_heads, length = key.shape[1], key.shape[2]
    size, share = max(16, triton.next_power_of_2(head_size)), heads // kv_heads
    all_tiles = triton.cdiv(length, KEYS)
    tiles = triton.cdiv(all_tiles, max(1, CHUNKS // (kv_heads * batch)))
    chunks = triton.cdiv(all_tiles, tiles)
    parts = torch.empty(batch, heads, chunks, size + 1, dtype=torch.float32, device=query.device).flatten()
    part, part_lse = parts[: batch * heads * chunks * size], parts[batch * heads * chunks * size :]
    out, lse = torch.empty_like(query, memory_format=torch.contiguous_format), parts.new_empty(batch, heads, 1)
    capped = scoring.softcap is not None
    cap = scoring.softcap * LOG2_E if scoring.softcap is not None else 0.0
    scale = scoring.scale * LOG2_E * (2 / scoring.softcap if scoring.softcap is not None else 1.0)
    tensors = (query, key, value, membership, part, part_lse)
    strides = (*query.stride()[:2], *key.stride()[:3], *value.stride()[:3], membership.stride(0))
    rows = max(FEWEST_ROWS, triton.next_power_of_2(share))
    numbers = (length, tiles, scale, cap, min(rule.window, length), min(rule.num_sinks, length), heads)
    sizes = (share, rows, head_size, size, KEYS, capped)
    launch(_chunk_kernel, (chunks, kv_heads, batch), (*tensors, *strides, *numbers, *sizes), WARPS, STAGES)
    joined = (part, part_lse, out, lse, heads, chunks, head_size, size, triton.next_power_of_2(chunks))
    launch(_join_kernel, (heads, batch, 1), joined, WARPS, 1)
    return out, lse
