"""Focus for one new token on a GPU: keys in chunks side by side, read only where the query may look.

`chunk_kernel` computes one chunk of keys for the query heads of one key head, `join_kernel` joins the chunks by their
logsumexps. Nothing waits for the device, so a decode step can be one CUDA graph.

Shape suffixes: r query heads of a key head, n keys of a tile, d head size, c chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from focus_runtime.attention.cuda.tiles import LN_2, HeadFactors, HeadSets, near, powers, products, rows, softmax_step
from focus_runtime.attention.reference import Scoring
from focus_runtime.config import CONSTANT
from focus_runtime.gpu import aligned, alike, multiples, power_of_two, tiles_of
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.on_gpu import all_bits, in_bytes


@triton.jit(do_not_specialize=["lses", "length", "tiles", "window", "num_sinks", "heads"])
def chunk_kernel(
    Q, K, V, MEMBER, SETS, WINDOWS, PART,
    lses, q_batch, q_head, k_batch, k_head, k_token, v_batch, v_head, v_token, member_set, member_batch, length,
    tiles, scale, cap, window, num_sinks, heads, grow_first, grow_last,
    share: tl.constexpr, ROWS: tl.constexpr, HEAD: tl.constexpr, SIZE: tl.constexpr, BN: tl.constexpr,
    CAPPED: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
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
def join_kernel(PART, OUT, lses, heads, chunks, HEAD: tl.constexpr, SIZE: tl.constexpr, CHUNKS_: tl.constexpr):
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


@triton.jit(do_not_specialize=["set_stride", "place", "grow_first", "grow_last"])
def decide_kernel(
    HIDDEN, WEIGHTS, POTENTIAL, FIRST, KNOWN, PROBABILITIES, SETS, FOUND, Q, Q_OUT, FACTORS, ACTS, TOKENS,
    q_head, set_stride, place, threshold, grow_first, grow_last,
    num_groups: tl.constexpr, top_ks: tl.constexpr, num_sets: tl.constexpr, most: tl.constexpr, width: tl.constexpr,
    LOOKS: tl.constexpr, KNOWS: tl.constexpr, FACTORED: tl.constexpr, GROUPS: tl.constexpr, BE: tl.constexpr,
    HEAD: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
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


FEWEST_ROWS = 16  # of a matrix product
KEYS = 64  # of a tile
CHUNKS = 512  # programs over all key heads and texts, about: enough to fill a large GPU
WARPS, STAGES = 4, 2


def decode_on_gpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    settings: HeadSets | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention of the newest token.

    Args:
        query: (B, H, 1, D) in half precision; key, value: (B, G, T, D); the last dimension contiguous.
        membership: (B, T) int64 bit sets, or (S, B, T) of several top-k; the last dimension contiguous.
        settings: memberships and windows of the heads; the only one and the rule's when None.

    Returns:
        out (B, H, 1, D); what the kernels left, whose last B * H fp32 are the logsumexps: a view of them would take
        time in every layer of a decode step.
    """
    batch, heads, _, head_size = query.shape
    kv_heads, length = key.shape[1], key.shape[2]
    strides = (*query.stride()[:2], *key.stride()[:3], *value.stride()[:3], membership.stride(0), membership.stride(-2))
    apart = 0 if settings is None else 1 if settings.windows.shape[0] == kv_heads else 2
    pairs = (rule.window, rule.num_sinks, rule.growth, scoring.scale, scoring.softcap)
    capped = scoring.softcap is not None
    all_tiles = tiles_of(length, KEYS)
    tiles = tiles_of(all_tiles, max(1, CHUNKS // (kv_heads * batch)))
    chunks = tiles_of(all_tiles, tiles)
    joined = power_of_two(chunks)
    starts, kinds = aligned(query, key, value, membership), multiples(*strides)  # lengths grow with every step
    kind = (query.shape, kv_heads, query.device, query.dtype)
    launches = alike("decode", kind, pairs, apart, joined, starts, kinds)
    if launches.numbers is None:
        size, share = max(16, power_of_two(head_size)), heads // kv_heads
        rows = max(FEWEST_ROWS, power_of_two(share))
        launches.numbers = (size, scoring.in_base_two(), (share, rows, head_size, size, KEYS, capped, apart))
    size, scales, sizes = launches.numbers
    room = batch * heads * chunks
    lses = room * size
    parts = torch.empty(lses + room + batch * heads, dtype=torch.float32, device=query.device)
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    by_head = (parts, parts) if settings is None else (settings.sets, settings.windows)
    numbers = (length, tiles, *scales, min(rule.window, length), min(rule.num_sinks, length), heads, *rule.growth)
    arguments = (query, key, value, membership, *by_head, parts, lses, *strides, *numbers, *sizes)
    launches.run("chunk", chunk_kernel, (chunks, kv_heads, batch), arguments, WARPS, STAGES)
    arguments = (parts, out, lses, heads, chunks, head_size, size, joined)
    launches.run("join", join_kernel, (heads, batch, 1), arguments, WARPS, 1)
    return out, parts


CELLS = 4096  # of the router's weights, at once


@dataclass(frozen=True, slots=True, eq=False)
class Sinks:
    """How text sinks are found, see composition/groups.py.

    Attributes:
        known: (1, 1) bool, whether an earlier layer found the token; None where none has looked.
        first: (1, E) contiguous, input of the text's first token, of the type of the hidden states; None where this
            layer does not look.
    """

    known: Tensor | None
    first: Tensor | None
    threshold: float


def decide_on_gpu(
    hidden: Tensor,
    weights: Tensor,
    potential: Tensor,
    sets: Tensor,
    place: int,
    top_ks: tuple[int, ...],
    query: Tensor,
    *,
    sinks: Sinks | None = None,
    factors: HeadFactors | None = None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Groups of one new token, written behind those of the tokens before it.

    Args:
        hidden: (1, 1, E) in half or single precision, contiguous.
        weights: (E, K) float32: W_g C^T / tau, contiguous.
        sets: (S, 1, N) int64 bit sets by top-k, the last dimension contiguous; those at `place` are written.
        top_ks: S distinct k, at most 7, see `in_bytes`.
        query: (1, H, 1, D), the last dimension contiguous.

    Returns:
        (K,) probabilities float32; whether the token is a text sink, (1, 1) bool, None where nobody looked; queries,
        (1, H, 1, D).
    """
    heads, head_size, q_head, device = query.shape[1], query.shape[3], query.stride(1), hidden.device
    probabilities = unused = torch.empty(weights.shape[1], dtype=torch.float32, device=device)
    sinks = sinks or Sinks(None, None, 0.0)
    looks, knows = sinks.first is not None, sinks.known is not None
    first, known = (unused if x is None else x for x in (sinks.first, sinks.known))
    found = torch.empty((1, 1), dtype=torch.bool, device=device) if looks else sinks.known
    numbers, growth, scaled = (unused, unused, unused), CONSTANT, query
    if factors is not None:
        scaled = query.new_empty(1, heads, 1, head_size)
        numbers, growth = factors.tensors, factors.growth
    kinds = (weights.shape, top_ks, looks, knows, query.shape, q_head, factors is not None)
    starts = aligned(hidden, weights, potential, sets, query, first, known, *numbers)
    launches = alike("decide", device, hidden.dtype, weights.dtype, query.dtype, kinds, starts)
    if launches.numbers is None:
        (width, groups), padded = weights.shape, power_of_two(weights.shape[1])
        sizes = (padded, min(CELLS // padded, power_of_two(width)), head_size, power_of_two(head_size))
        flags = (looks, knows, factors is not None)
        launches.numbers = (groups, in_bytes(top_ks), len(top_ks), max(top_ks), width, *flags, *sizes)
    flag = found if looks else unused
    tensors = (hidden, weights, potential, first, known, probabilities, sets, flag, query, scaled, *numbers)
    arguments = (*tensors, q_head, sets.stride(0), place, float(sinks.threshold), *growth, *launches.numbers)
    programs = 1 + heads if factors is not None else 1
    launches.run("decide", decide_kernel, (programs, 1, 1), arguments, WARPS, STAGES)
    return probabilities, found, scaled
