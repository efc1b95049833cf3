"""Kernels of exact Focus; grouped.py says how they go together.

Shape suffixes: m queries of a tile, n keys of a tile, d head size, k groups.
"""

from __future__ import annotations

import triton
import triton.language as tl

from focus_runtime.attention.cuda.tiles import LN_2, LOG2_E, near, products, rows, softmax_step

SINKS_AT_ONCE = tl.constexpr(16)
NEAR_AT_ONCE = tl.constexpr(128)


@triton.jit(do_not_specialize=["window", "reach", "num_sinks", "heads"])
def near_kernel(
    Q, K, V, OUT, LSE, HEADS, WINDOWS,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token, length, scale, cap, window, reach,
    num_sinks, heads, grow_first, grow_last,
    share: tl.constexpr, HEAD: tl.constexpr, SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAPPED: tl.constexpr, PER_HEAD: tl.constexpr,
):  # fmt: skip
    tile, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    if PER_HEAD:
        head = tl.load(HEADS + head)
        window = tl.minimum(tl.load(WINDOWS + head), length)
    q_m = tile * BM + tl.arange(0, BM)
    d = tl.arange(0, SIZE)
    real_m, real_d = q_m < length, d < HEAD
    K += batch * k_batch + (head // share) * k_head
    V += batch * v_batch + (head // share) * v_head
    query_md = rows(Q + batch * q_batch + head * q_head, q_m, q_token, real_m, d, real_d)
    acc_md = tl.zeros([BM, SIZE], dtype=tl.float32)
    top_m = tl.full([BM], -1.0e30, dtype=tl.float32)
    sum_m = tl.zeros([BM], dtype=tl.float32)
    near_m = near(window, q_m, reach, grow_first, grow_last)
    last_near = near(window, tile * BM + BM - 1, reach, grow_first, grow_last)
    far_sinks = tl.where((tile * BM + BM - 1 > last_near) & (tile * BM - num_sinks < reach), num_sinks, 0)
    for start in range(0, far_sinks, SINKS_AT_ONCE):
        n = start + tl.arange(0, SINKS_AT_ONCE)
        real_n = n < num_sinks
        score_mn = products(query_md, rows(K, n, k_token, real_n, d, real_d), scale, cap, CAPPED)
        distance_mn = q_m[:, None] - n[None, :]
        seen_mn = real_n[None, :] & (distance_mn > near_m[:, None]) & (distance_mn < reach)
        score_mn = tl.where(seen_mn, score_mn, float("-inf"))
        value_nd = rows(V, n, v_token, real_n, d, real_d)
        acc_md, top_m, sum_m = softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    first = tl.maximum(0, tile * BM - near(window, tile * BM, reach, grow_first, grow_last)) // BN * BN
    for start in range(first, tl.minimum(length, tile * BM + BM), BN):
        n = start + tl.arange(0, BN)
        real_n = n < length
        score_mn = products(query_md, rows(K, n, k_token, real_n, d, real_d), scale, cap, CAPPED)
        distance_mn = q_m[:, None] - n[None, :]
        score_mn = tl.where((distance_mn <= near_m[:, None]) & (distance_mn >= 0), score_mn, float("-inf"))
        value_nd = rows(V, n, v_token, real_n, d, real_d)
        acc_md, top_m, sum_m = softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    out_m = (batch * length + q_m) * heads + head
    out_md = (acc_md / sum_m[:, None]).to(OUT.dtype.element_ty)
    tl.store(OUT + out_m[:, None] * HEAD + d[None, :], out_md, mask=real_m[:, None] & real_d[None, :])
    tl.store(LSE + (batch * heads + head) * length + q_m, (top_m + tl.math.log2(sum_m)) * LN_2, mask=real_m)


@triton.jit(do_not_specialize=["kv_heads", "num_groups"])
def copy_kernel(
    K, V, KEY_COPY, VALUE_COPY, KEY_TOKEN, KEY_BOUNDS,
    k_batch, k_head, k_token, v_batch, v_head, v_token, entries, kv_heads, num_groups,
    HEAD: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Keys and values in the order of groups, (B, G, E, D)."""
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, SIZE)
    real_n, real_d = n < tl.load(KEY_BOUNDS + batch * (num_groups + 1) + num_groups), d < HEAD
    token_n = tl.load(KEY_TOKEN + batch * entries + n, mask=real_n, other=0)
    key_nd = rows(K + batch * k_batch + head * k_head, token_n, k_token, real_n, d, real_d)
    value_nd = rows(V + batch * v_batch + head * v_head, token_n, v_token, real_n, d, real_d)
    place_nd = ((batch * kv_heads + head) * entries + n)[:, None] * HEAD + d[None, :]
    inside_nd = (n < entries)[:, None] & real_d[None, :]
    tl.store(KEY_COPY + place_nd, key_nd, mask=inside_nd)
    tl.store(VALUE_COPY + place_nd, value_nd, mask=inside_nd)


@triton.jit
def _entries_from(key_token, place, first, position, most):
    """How many of the entries before `place`, at most `most` of them, stand at `position` or after it."""
    found = 0
    for back in range(0, tl.minimum(most, place - first), NEAR_AT_ONCE):
        entry_n = place - 1 - back - tl.arange(0, NEAR_AT_ONCE)
        token_n = tl.load(key_token + entry_n, mask=entry_n >= first, other=-1)
        found += tl.sum(((token_n >= position) & (entry_n >= first)).to(tl.int32), axis=0)
    return found


@triton.jit
def _far_tile(X, COPY, row, key_n, token, real_n, d, real_d, COPIED: tl.constexpr):
    """One tile of keys or values: from the copy, by whole rows from entry `row`, or by token."""
    if COPIED:  # noqa: SIM108 - compiled where true
        tile_nd = COPY.load([row, 0])
    else:
        tile_nd = rows(X, key_n, token, real_n, d, real_d)
    return tile_nd


@triton.jit(do_not_specialize=["window", "reach", "num_sinks", "heads", "num_groups"])
def far_kernel(
    Q, K, V, KEY_COPY, VALUE_COPY, OUT, LSE, MEMBER, KEY_TOKEN, KEY_BITS, KEY_BOUNDS, QUERY_TOKEN, QUERY_PLACE,
    QUERY_BOUNDS, HEADS, WINDOWS,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token, length, entries, query_entries,
    scale, cap, window, reach, num_sinks, heads, grow_first, grow_last, num_groups,
    share: tl.constexpr, HEAD: tl.constexpr, SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    GROUPS: tl.constexpr, ONE: tl.constexpr, LATER: tl.constexpr, COPIED: tl.constexpr, CAPPED: tl.constexpr,
    SLIDING: tl.constexpr, PER_HEAD: tl.constexpr,
):  # fmt: skip
    head, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    if PER_HEAD:
        head = tl.load(HEADS + head)
        window = tl.load(WINDOWS + head)
        if window >= length - 1:
            return
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
    near_m = near(window, q_m, reach, grow_first, grow_last)
    least, most = (
        near(window, earliest, reach, grow_first, grow_last),
        near(window, latest, reach, grow_first, grow_last),
    )
    full = place - _entries_from(KEY_TOKEN, place, first_key, earliest - least, least)  # far from every query
    end = last_place - _entries_from(KEY_TOKEN, last_place, first_key, latest - most, most)
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
    query_md = rows(Q + batch * q_batch + head * q_head, q_m, q_token, real_m, d, real_d)
    OUT += ((batch * length + q_m.to(tl.int64)) * heads + head)[:, None] * HEAD + d[None, :]
    LSE += (batch * heads + head) * length + q_m
    acc_md = tl.load(OUT, mask=real_m[:, None] & real_d[None, :], other=0.0).to(tl.float32)
    top_m = tl.load(LSE) * LOG2_E
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
        key_nd = _far_tile(K, KEY_COPY, row + start, key_n, k_token, every_n, d, real_d, COPIED)
        score_mn = products(query_md, key_nd, scale, cap, CAPPED)
        if LATER:
            other_n = tl.load(KEY_BITS + entry_n)
            score_mn = tl.where((lower_m[:, None] & other_n[None, :]) != 0, float("-inf"), score_mn)
        value_nd = _far_tile(V, VALUE_COPY, row + start, key_n, v_token, every_n, d, real_d, COPIED)
        acc_md, top_m, sum_m = softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    for start in range(full_stop, end, BN):
        entry_n = start + tl.arange(0, BN)
        real_n = entry_n < end
        key_n = tl.load(KEY_TOKEN + entry_n, mask=real_n, other=0)
        key_nd = _far_tile(K, KEY_COPY, row + start, key_n, k_token, real_n, d, real_d, COPIED)
        score_mn = products(query_md, key_nd, scale, cap, CAPPED)
        seen_mn = real_n[None, :] & (key_n[None, :] < (q_m - near_m)[:, None])
        if SLIDING:
            seen_mn = seen_mn & (key_n[None, :] > (q_m - reach)[:, None])
        if LATER:
            other_n = tl.load(KEY_BITS + entry_n, mask=real_n, other=0)
            seen_mn = seen_mn & ((lower_m[:, None] & other_n[None, :]) == 0)
        score_mn = tl.where(seen_mn, score_mn, float("-inf"))
        value_nd = _far_tile(V, VALUE_COPY, row + start, key_n, v_token, real_n, d, real_d, COPIED)
        acc_md, top_m, sum_m = softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    out_md = (acc_md / sum_m[:, None]).to(OUT.dtype.element_ty)
    tl.store(OUT, out_md, mask=real_m[:, None] & real_d[None, :])
    tl.store(LSE, (top_m + tl.math.log2(sum_m)) * LN_2, mask=real_m)


@triton.jit(do_not_specialize=["window", "reach", "num_sinks", "heads", "num_groups"])
def rest_kernel(
    Q, K, V, OUT, LSE, MEMBER, QUERY_TOKEN, QUERY_BOUNDS, HEADS, WINDOWS,
    q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token, length, scale, cap, window, reach,
    num_sinks, heads, grow_first, grow_last, num_groups,
    share: tl.constexpr, HEAD: tl.constexpr, SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAPPED: tl.constexpr, PER_HEAD: tl.constexpr,
):  # fmt: skip
    """The few queries of more than k groups, over all far keys in the text's order."""
    tile, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    if PER_HEAD:
        head = tl.load(HEADS + head)
        window = tl.load(WINDOWS + head)
        if window >= length - 1:
            return
    stop = tl.load(QUERY_BOUNDS + batch * (num_groups + 1) + 1)
    if tile * BM >= stop:
        return
    QUERY_TOKEN += batch * length
    entry_m = tile * BM + tl.arange(0, BM)
    real_m = entry_m < stop
    q_m = tl.load(QUERY_TOKEN + tl.minimum(entry_m, stop - 1))
    earliest = tl.load(QUERY_TOKEN + tile * BM)
    latest = tl.load(QUERY_TOKEN + tl.minimum(tile * BM + BM, stop) - 1)
    d = tl.arange(0, SIZE)
    real_d = d < HEAD
    K += batch * k_batch + (head // share) * k_head
    V += batch * v_batch + (head // share) * v_head
    MEMBER += batch * length
    query_md = rows(Q + batch * q_batch + head * q_head, q_m, q_token, real_m, d, real_d)
    OUT += ((batch * length + q_m.to(tl.int64)) * heads + head)[:, None] * HEAD + d[None, :]
    LSE += (batch * heads + head) * length + q_m
    acc_md = tl.load(OUT, mask=real_m[:, None] & real_d[None, :], other=0.0).to(tl.float32)
    top_m = tl.load(LSE) * LOG2_E
    sum_m = tl.full([BM], 1.0, dtype=tl.float32)
    own_m = tl.load(MEMBER + q_m)
    first = tl.maximum(num_sinks, earliest - reach + 1)
    near_m = near(window, q_m, reach, grow_first, grow_last)
    for start in range(first, latest - near(window, latest, reach, grow_first, grow_last), BN):
        n = start + tl.arange(0, BN)
        real_n = n < length
        other_n = tl.load(MEMBER + n, mask=real_n, other=0)
        distance_mn = q_m[:, None] - n[None, :]
        seen_mn = ((own_m[:, None] & other_n[None, :]) != 0) & (distance_mn > near_m[:, None])
        seen_mn = seen_mn & (distance_mn < reach)
        score_mn = products(query_md, rows(K, n, k_token, real_n, d, real_d), scale, cap, CAPPED)
        score_mn = tl.where(seen_mn, score_mn, float("-inf"))
        value_nd = rows(V, n, v_token, real_n, d, real_d)
        acc_md, top_m, sum_m = softmax_step(score_mn, scale, value_nd, acc_md, top_m, sum_m, CAPPED)
    out_md = (acc_md / sum_m[:, None]).to(OUT.dtype.element_ty)
    tl.store(OUT, out_md, mask=real_m[:, None] & real_d[None, :])
    tl.store(LSE, (top_m + tl.math.log2(sum_m)) * LN_2, mask=real_m)
