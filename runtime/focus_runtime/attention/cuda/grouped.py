"""Exact Focus on a GPU in Triton, any k: near pairs and sinks in the order of the text, far pairs in the order of groups.

`_near_kernel` computes what every query sees whatever its groups: keys within the window, and sinks beyond it.
`_far_kernel` then takes the queries of one group, a tile at a time, and continues their softmax over the group's keys
farther than the window. Only tiles about the window's end need a mask, and nothing is merged. A token of k groups is
a query in k passes; in the r-th, keys that share one of its lower groups are left out, for an earlier pass had them.

Far keys and values are read where they stand in the text, or, where they are read often enough, from copies in the
order of groups (`_copy_kernel`), which the GPU's copy engine fetches by whole tiles.

Forward only. Shape suffixes: m queries of a tile, n keys of a tile, d head size, k groups.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from focus_runtime.attention.cuda.launch import launch
from focus_runtime.attention.cuda.sorting import SortedTokens, sort_by_group
from focus_runtime.attention.scoring import Scoring
from focus_runtime.mask.extent import Extent
from focus_runtime.mask.rule import PairRule

LOG2_E = 1.4426950408889634
COPY_FROM = 4096  # far keys that a key is read for, on average and over its query heads, from which copies pay
COPY_ENGINE = (9, 0)  # compute capability
ROWS_COPIED = 64
FEWEST_GROUPS = 8  # columns of what is looked up by group; few sizes are few kernels to compile
SINKS_AT_ONCE = tl.constexpr(16)
NEAR_AT_ONCE = tl.constexpr(128)
LN_2 = tl.constexpr(0.6931471805599453)
Stage = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a kernel is cut: queries and keys of a tile, warps, and tiles of keys in flight."""

    queries: int
    keys: int
    warps: int
    stages: int


NEAR_TILES = {64: Tiles(64, 64, 4, 3), 128: Tiles(64, 32, 4, 3), 256: Tiles(64, 32, 4, 2)}
FAR_TILES = {64: Tiles(128, 64, 4, 4), 128: Tiles(128, 128, 8, 2), 256: Tiles(64, 32, 4, 2)}
COPIED_TILES = {64: Tiles(128, 128, 4, 2), 128: Tiles(128, 128, 8, 2), 256: Tiles(128, 64, 8, 2)}


@triton.jit
def _products(query_md, key_nd, scale, cap, CAPPED: tl.constexpr):
    """Products of a tile; capped ones are in the log2 domain already."""
    score_mn = tl.dot(query_md, tl.trans(key_nd))
    if CAPPED:  # tanh by exp2; `cap` is in the log2 domain, `scale` takes products to twice the tanh's argument there
        score_mn = cap - 2.0 * cap / (tl.math.exp2(score_mn * scale) + 1.0)
    return score_mn


@triton.jit
def _softmax_step(score_mn, scale, v_nd, acc_md, top_m, sum_m, CAPPED: tl.constexpr):
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
def _rows(X, n, token, real_n, d, real_d):
    """Rows of a tile, zero where not real."""
    return tl.load(X + n.to(tl.int64)[:, None] * token + d[None, :], mask=real_n[:, None] & real_d[None, :], other=0.0)


@triton.jit(do_not_specialize=["window", "reach", "num_sinks", "heads"])
def _near_kernel(
    Q,
    K,
    V,
    OUT,
    LSE,
    q_batch,
    q_head,
    q_token,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    length,
    scale,
    cap,
    window,
    reach,
    num_sinks,
    heads,
    share: tl.constexpr,
    HEAD: tl.constexpr,
    SIZE: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAPPED: tl.constexpr,
):
    tile, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    q_m = tile * BM + tl.arange(0, BM)
    d = tl.arange(0, SIZE)
    real_m, real_d = q_m < length, d < HEAD
    K += batch * k_batch + (head // share) * k_head
    V += batch * v_batch + (head // share) * v_head
    query_md = _rows(Q + batch * q_batch + head * q_head, q_m, q_token, real_m, d, real_d)
    acc_md = tl.zeros([BM, SIZE], dtype=tl.float32)
    top_m = tl.full([BM], -1.0e30, dtype=tl.float32)
    sum_m = tl.zeros([BM], dtype=tl.float32)
    far_sinks = tl.where((tile * BM + BM - 1 > window) & (tile * BM - num_sinks < reach), num_sinks, 0)
    for start in range(0, far_sinks, SINKS_AT_ONCE):
        n = start + tl.arange(0, SINKS_AT_ONCE)
        real_n = n < num_sinks
        score_mn = _products(query_md, _rows(K, n, k_token, real_n, d, real_d), scale, cap, CAPPED)
        distance_mn = q_m[:, None] - n[None, :]
        seen_mn = real_n[None, :] & (distance_mn > window) & (distance_mn < reach)
        score_mn = tl.where(seen_mn, score_mn, float("-inf"))
        value_nd = _rows(V, n, v_token, real_n, d, real_d)
        acc_md, top_m, sum_m = _softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    first = tl.maximum(0, tile * BM - window) // BN * BN
    for start in range(first, tl.minimum(length, tile * BM + BM), BN):
        n = start + tl.arange(0, BN)
        real_n = n < length
        score_mn = _products(query_md, _rows(K, n, k_token, real_n, d, real_d), scale, cap, CAPPED)
        distance_mn = q_m[:, None] - n[None, :]
        score_mn = tl.where((distance_mn <= window) & (distance_mn >= 0), score_mn, float("-inf"))
        value_nd = _rows(V, n, v_token, real_n, d, real_d)
        acc_md, top_m, sum_m = _softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    out_m = (batch * length + q_m) * heads + head
    out_md = (acc_md / sum_m[:, None]).to(OUT.dtype.element_ty)
    tl.store(OUT + out_m[:, None] * HEAD + d[None, :], out_md, mask=real_m[:, None] & real_d[None, :])
    tl.store(LSE + (batch * heads + head) * length + q_m, (top_m + tl.math.log2(sum_m)) * LN_2, mask=real_m)


@triton.jit(do_not_specialize=["kv_heads", "num_groups"])
def _copy_kernel(
    K,
    V,
    KEY_COPY,
    VALUE_COPY,
    KEY_TOKEN,
    KEY_BOUNDS,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    entries,
    kv_heads,
    num_groups,
    HEAD: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Keys and values in the order of groups, (B, G, E, D)."""
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, SIZE)
    real_n, real_d = n < tl.load(KEY_BOUNDS + batch * (num_groups + 1) + num_groups), d < HEAD
    token_n = tl.load(KEY_TOKEN + batch * entries + n, mask=real_n, other=0)
    key_nd = _rows(K + batch * k_batch + head * k_head, token_n, k_token, real_n, d, real_d)
    value_nd = _rows(V + batch * v_batch + head * v_head, token_n, v_token, real_n, d, real_d)
    place_nd = ((batch * kv_heads + head) * entries + n)[:, None] * HEAD + d[None, :]
    inside_nd = (n < entries)[:, None] & real_d[None, :]
    tl.store(KEY_COPY + place_nd, key_nd, mask=inside_nd)
    tl.store(VALUE_COPY + place_nd, value_nd, mask=inside_nd)


@triton.jit
def _entries_from(key_token, place, first, position, window):
    """How many of the entries before `place`, at most `window` of them, stand at `position` or after it."""
    found = 0
    for back in range(0, window, NEAR_AT_ONCE):
        entry_n = place - 1 - back - tl.arange(0, NEAR_AT_ONCE)
        token_n = tl.load(key_token + entry_n, mask=entry_n >= first, other=-1)
        found += tl.sum(((token_n >= position) & (entry_n >= first)).to(tl.int32), axis=0)
    return found


@triton.jit
def _far_tile(X, COPY, row, entry_n, key_n, token, real_n, d, real_d, COPIED: tl.constexpr):
    """One tile of keys or values: from the copy, by whole rows from entry `row`, or by token."""
    if COPIED:
        tile_nd = COPY.load([row, 0])
    else:
        tile_nd = _rows(X, key_n, token, real_n, d, real_d)
    return tile_nd


@triton.jit(do_not_specialize=["window", "reach", "num_sinks", "heads", "num_groups"])
def _far_kernel(
    Q,
    K,
    V,
    KEY_COPY,
    VALUE_COPY,
    OUT,
    LSE,
    MEMBER,
    KEY_TOKEN,
    KEY_BITS,
    KEY_BOUNDS,
    QUERY_TOKEN,
    QUERY_PLACE,
    QUERY_BOUNDS,
    q_batch,
    q_head,
    q_token,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    length,
    entries,
    query_entries,
    scale,
    cap,
    window,
    reach,
    num_sinks,
    heads,
    num_groups,
    share: tl.constexpr,
    HEAD: tl.constexpr,
    SIZE: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    GROUPS: tl.constexpr,
    ONE: tl.constexpr,
    LATER: tl.constexpr,
    COPIED: tl.constexpr,
    CAPPED: tl.constexpr,
    SLIDING: tl.constexpr,
):
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    k = tl.arange(0, GROUPS)
    bound = QUERY_BOUNDS + batch * (num_groups + 1)
    start_k = tl.load(bound + k, mask=k < num_groups, other=0)
    stop_k = tl.load(bound + k + 1, mask=k < num_groups, other=0)
    tiles_k = (stop_k - start_k + BM - 1) // BM
    tile = tl.sum(tiles_k, axis=0) - 1 - tl.program_id(0)  # each group's longest first
    if tile < 0:
        return
    before_k = tl.cumsum(tiles_k, axis=0) - tiles_k
    mine_k = (before_k <= tile) & (tile < before_k + tiles_k)
    group = tl.sum(tl.where(mine_k, k, 0), axis=0)
    tile_start = tl.sum(tl.where(mine_k, start_k + (tile - before_k) * BM, 0), axis=0)
    stop = tl.sum(tl.where(mine_k, stop_k, 0), axis=0)
    first_key = tl.load(KEY_BOUNDS + batch * (num_groups + 1) + group)

    KEY_TOKEN += batch * entries
    QUERY_TOKEN += batch * query_entries
    entry_m = tile_start + tl.arange(0, BM)
    real_m = entry_m < stop
    last = tl.minimum(tile_start + BM, stop) - 1
    q_m = tl.load(QUERY_TOKEN + tl.minimum(entry_m, stop - 1))
    earliest, latest = tl.load(QUERY_TOKEN + tile_start), tl.load(QUERY_TOKEN + last)
    if ONE:
        place, last_place = tile_start, last
    else:
        QUERY_PLACE += batch * query_entries
        place, last_place = tl.load(QUERY_PLACE + tile_start), tl.load(QUERY_PLACE + last)
    full = place - _entries_from(KEY_TOKEN, place, first_key, earliest - window, window)  # far from every query
    end = last_place - _entries_from(KEY_TOKEN, last_place, first_key, latest - window, window)
    first = first_key
    for start in range(0, num_sinks, SINKS_AT_ONCE):
        entry_n = first_key + start + tl.arange(0, SINKS_AT_ONCE)
        token_n = tl.load(KEY_TOKEN + entry_n, mask=entry_n < last_place, other=num_sinks)
        first += tl.sum((token_n < num_sinks).to(tl.int32), axis=0)
    if SLIDING:
        first = tl.maximum(first, place - _entries_from(KEY_TOKEN, place, first_key, earliest - reach + 1, reach))
        full = first  # every tile takes the mask: both ends of what is seen move with the query
    if first >= end:
        return

    d = tl.arange(0, SIZE)
    real_d = d < HEAD
    K += batch * k_batch + (head // share) * k_head
    V += batch * v_batch + (head // share) * v_head
    row = ((batch * (heads // share) + head // share) * entries).to(tl.int32)
    query_md = _rows(Q + batch * q_batch + head * q_head, q_m, q_token, real_m, d, real_d)
    OUT += ((batch * length + q_m.to(tl.int64)) * heads + head)[:, None] * HEAD + d[None, :]
    LSE += (batch * heads + head) * length + q_m
    acc_md = tl.load(OUT, mask=real_m[:, None] & real_d[None, :], other=0.0).to(tl.float32)
    top_m = tl.load(LSE) * 1.4426950408889634
    sum_m = tl.full([BM], 1.0, dtype=tl.float32)
    if LATER:
        KEY_BITS += batch * entries
        lower_m = tl.load(MEMBER + batch * length + q_m)
        lower_m = (lower_m & ((1 << group.to(tl.int64)) - 1)).to(KEY_BITS.dtype.element_ty)

    full_stop = first + tl.maximum(0, full - first) // BN * BN
    every_n = tl.full([BN], True, dtype=tl.int1)
    for start in range(first, full_stop, BN):
        entry_n = start + tl.arange(0, BN)
        key_n = entry_n
        if not COPIED:
            key_n = tl.load(KEY_TOKEN + entry_n)
        key_nd = _far_tile(K, KEY_COPY, row + start, entry_n, key_n, k_token, every_n, d, real_d, COPIED)
        score_mn = _products(query_md, key_nd, scale, cap, CAPPED)
        if LATER:
            other_n = tl.load(KEY_BITS + entry_n)
            score_mn = tl.where((lower_m[:, None] & other_n[None, :]) != 0, float("-inf"), score_mn)
        value_nd = _far_tile(V, VALUE_COPY, row + start, entry_n, key_n, v_token, every_n, d, real_d, COPIED)
        acc_md, top_m, sum_m = _softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    for start in range(full_stop, end, BN):
        entry_n = start + tl.arange(0, BN)
        real_n = entry_n < end
        key_n = tl.load(KEY_TOKEN + entry_n, mask=real_n, other=0)
        key_nd = _far_tile(K, KEY_COPY, row + start, entry_n, key_n, k_token, real_n, d, real_d, COPIED)
        score_mn = _products(query_md, key_nd, scale, cap, CAPPED)
        seen_mn = real_n[None, :] & (key_n[None, :] < (q_m - window)[:, None])
        if SLIDING:
            seen_mn = seen_mn & (key_n[None, :] > (q_m - reach)[:, None])
        if LATER:
            other_n = tl.load(KEY_BITS + entry_n, mask=real_n, other=0)
            seen_mn = seen_mn & ((lower_m[:, None] & other_n[None, :]) == 0)
        score_mn = tl.where(seen_mn, score_mn, float("-inf"))
        value_nd = _far_tile(V, VALUE_COPY, row + start, entry_n, key_n, v_token, real_n, d, real_d, COPIED)
        acc_md, top_m, sum_m = _softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    out_md = (acc_md / sum_m[:, None]).to(OUT.dtype.element_ty)
    tl.store(OUT, out_md, mask=real_m[:, None] & real_d[None, :])
    tl.store(LSE, (top_m + tl.math.log2(sum_m)) * LN_2, mask=real_m)


def _unmeasured(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def copies_pay(query: Tensor, key: Tensor, extent: Extent) -> bool:
    """Whether far keys are read often enough to be copied in the order of groups, and the GPU can fetch them then.

    Args:
        query: (B, H, T, D); key: (B, G, T, D).
        extent: K and k.
    """
    if key.shape[3] * key.element_size() % 16 or key.shape[0] * key.shape[1] * key.shape[2] * extent.top_k >= 1 << 31:
        return False
    if query.device.type == "cuda" and torch.cuda.get_device_capability(query.device) < COPY_ENGINE:
        return False
    readers = query.shape[2] * extent.top_k / extent.num_groups * (query.shape[1] // key.shape[1])
    return readers >= COPY_FROM


def _copied(key: Tensor, value: Tensor, order: SortedTokens, num_groups: int, size: int) -> tuple[Tensor, Tensor]:
    """Keys and values in the order of groups, both (B * G * E, D)."""
    batch, kv_heads, _, head_size = key.shape
    entries = order.key_token.shape[1]
    copies = torch.empty(2, batch * kv_heads * entries, head_size, dtype=key.dtype, device=key.device)
    strides = (*key.stride()[:3], *value.stride()[:3])
    tensors = (key, value, copies[0], copies[1], order.key_token, order.bounds)
    grid = (triton.cdiv(entries, ROWS_COPIED), kv_heads, batch)
    launch(_copy_kernel, grid, (*tensors, *strides, entries, kv_heads, num_groups, head_size, size, ROWS_COPIED), 4, 1)
    return copies[0], copies[1]


def grouped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    *,
    extent: Extent,
    stage: Stage | None = None,
    copied: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Exact Focus in Triton, for as many queries as keys and without padding.

    Args:
        query: (B, H, T, D) in half precision; key, value: (B, G, T, D); the last dimension contiguous.
        membership: (B, T) int64 bit sets.
        rule: window, sinks and a sliding window of the layer's own.
        scoring: scale above 0, and softcap.
        extent: K and k; a wrong one gives wrong results. Nothing waits for the device.
        stage: for timing, as a `StageClock` does: called with "local", "sort", "gather" or "same_group", returns a
            context manager for that part.
        copied: read far keys from copies; by default where they pay.

    Returns:
        out (B, H, T, D), strided as (B, T, H, D); logsumexp (B, H, T) fp32.
    """
    stage = stage or _unmeasured
    batch, heads, length, head_size = query.shape
    out = torch.empty(batch, length, heads, head_size, dtype=query.dtype, device=query.device)
    lse = torch.empty(batch, heads, length, dtype=torch.float32, device=query.device)
    size = max(16, triton.next_power_of_2(head_size))
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3])
    window, num_sinks = min(rule.near, length), min(rule.num_sinks, length)
    reach = length if rule.sliding_window is None else min(rule.sliding_window, length)
    capped = scoring.softcap is not None
    cap = scoring.softcap * LOG2_E if scoring.softcap is not None else 0.0
    scale = scoring.scale * LOG2_E * (2 / scoring.softcap if scoring.softcap is not None else 1.0)
    pairs, sizes = (scale, cap, window, reach, num_sinks, heads), (heads // key.shape[1], head_size, size)
    tiles = NEAR_TILES[max(64, size)]
    with stage("local"):
        arguments = (query, key, value, out, lse, *strides, length, *pairs, *sizes, tiles.queries, tiles.keys, capped)
        grid = (triton.cdiv(length, tiles.queries), heads, batch)
        launch(_near_kernel, grid, arguments, tiles.warps, tiles.stages)
    if window >= reach - 1:
        return out.transpose(1, 2), lse
    with stage("sort"):
        order = sort_by_group(membership, extent)
    if copied is None:
        copied = copies_pay(query, key, extent)
    tiles = (COPIED_TILES if copied else FAR_TILES)[max(64, size)]
    far_key: Any = key
    far_value: Any = value
    if copied:
        with stage("gather"):
            copies = _copied(key, value, order, extent.num_groups, size)
            far_key, far_value = (TensorDescriptor.from_tensor(copy, [tiles.keys, size]) for copy in copies)
    entries, one = order.key_token.shape[1], order.one_group
    grid = (triton.cdiv(length, tiles.queries) + extent.num_groups, heads, batch)
    groups = max(FEWEST_GROUPS, triton.next_power_of_2(extent.num_groups))
    with stage("same_group"):
        for rank in range(extent.top_k):
            asked = (order.query_token, order.query_place, order.bounds)
            if not one:
                asked = (order.query_token[rank], order.query_place[rank], order.bounds[1 + rank])
            tensors = (query, key, value, far_key, far_value, out, lse, membership)
            sorted_keys = (order.key_token, order.key_bits, order.bounds)
            numbers = (*strides, length, entries, asked[0].shape[-1], *pairs, extent.num_groups)
            fixed = (*sizes, tiles.queries, tiles.keys, groups, one, rank > 0, copied, capped, reach < length)
            launch(_far_kernel, grid, (*tensors, *sorted_keys, *asked, *numbers, *fixed), tiles.warps, tiles.stages)
    return out.transpose(1, 2), lse
