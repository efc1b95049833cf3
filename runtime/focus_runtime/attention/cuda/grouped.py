"""Exact Focus on a GPU in Triton, any k: near pairs and sinks in the text's order, far pairs in the order of groups.

`near_kernel` computes what every query sees whatever its groups: keys within the window, and sinks beyond it.
`far_kernel` then takes the queries of one group, a tile at a time, and continues their softmax over the group's keys
farther than the window. Only tiles about the window's end need a mask, and nothing is merged. A token of k groups is
a query in k passes; in the r-th, keys that share one of its lower groups are left out, for an earlier pass had them.
Where a few tokens belong to more than k groups, `rest_kernel` tests the groups of all far keys for them as queries.

Far keys and values are read where they stand in the text, or, where they are read often enough, from copies in the
order of groups (`copy_kernel`), which the GPU's copy engine fetches by whole tiles.

Forward only. Shape suffixes: m queries of a tile, n keys of a tile, d head size, k groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from focus_runtime.attention.clock import Stage, unmeasured
from focus_runtime.attention.cuda.grouped_kernels import copy_kernel, far_kernel, near_kernel, rest_kernel
from focus_runtime.attention.cuda.sorting import FEWEST_GROUPS, entries_of, sort_by_group
from focus_runtime.attention.reference import Scoring
from focus_runtime.gpu import aligned, alike, power_of_two, tiles_of
from focus_runtime.mask.rule import Extent, PairRule

COPY_FROM = 4096  # far keys that a key is read for, on average and over its query heads, from which copies pay
HOPPER = (9, 0)  # compute capability of the first GPU whose copy engine fetches tiles
ROWS_COPIED, COPY_WARPS = 64, 4


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a kernel is cut: queries and keys of a tile, warps, tiles of keys in flight, and registers of a thread at
    most, None for as many as the compiler takes."""

    queries: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None


NEAR_TILES = {64: Tiles(64, 64, 4, 3), 128: Tiles(64, 32, 4, 3), 256: Tiles(64, 32, 4, 2)}
# 168 registers let a multiprocessor take a third program of four warps: 13 % less time at 8,192 tokens.
FAR_TILES = {64: Tiles(64, 64, 4, 3, 168), 128: Tiles(128, 128, 8, 2), 256: Tiles(64, 32, 4, 2)}
LARGE_SHARED = 166_000  # bytes a program may share on a data centre's GPU
COPIED_TILES = {64: Tiles(64, 128, 4, 3), 128: Tiles(64, 64, 4, 2), 256: Tiles(128, 64, 8, 2)}
# Before Hopper, or where a multiprocessor shares less: what fits into its memory and registers (on an A100 the larger
# tiles leave 2 to 4 KB of every thread in memory); compiled, not timed. Eight warps in the last leave nothing there and
# four 0.2 KB, but took 1.8 times as long on an H100.
SMALL_FAR_TILES = {64: Tiles(64, 64, 4, 3), 128: Tiles(64, 32, 4, 2), 256: Tiles(64, 32, 4, 2)}
SMALL_COPIED_TILES = COPIED_TILES | {64: Tiles(128, 64, 4, 3), 256: Tiles(64, 32, 4, 2)}


def copies_pay(query: Tensor, key: Tensor, extent: Extent) -> bool:
    """Whether far keys are read often enough to be copied in the order of groups, and the GPU can fetch them then."""
    rows = key.shape[0] * key.shape[1] * key.shape[2] * extent.top_k
    if extent.beyond or key.shape[3] * key.element_size() % 16 or rows >= 1 << 31:
        return False  # copies of tokens in every group could take K times the memory
    if query.device.type == "cuda" and torch.cuda.get_device_capability(query.device) < HOPPER:
        return False
    readers = query.shape[2] * extent.top_k / extent.num_groups * (query.shape[1] // key.shape[1])
    return readers >= COPY_FROM


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """Some of a layer's heads, each with a window of its own.

    Attributes:
        query: (n,) int32, numbers of query heads.
        windows: (H,) int32, the window of every query head; one that no text is longer than makes it full attention.
    """

    query: Tensor
    windows: Tensor


def _far_tiles(device: torch.device, copied: bool) -> dict[int, Tiles]:
    small, large = (SMALL_COPIED_TILES, COPIED_TILES) if copied else (SMALL_FAR_TILES, FAR_TILES)
    return large if _takes_large_tiles(device) else small


def _takes_large_tiles(device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    properties: Any = torch.cuda.get_device_properties(device)
    shared = getattr(properties, "shared_memory_per_block_optin", LARGE_SHARED)
    return shared >= LARGE_SHARED and (properties.major, properties.minor) >= HOPPER


def _planned(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rule: PairRule,
    scoring: Scoring,
    extent: Extent,
    copied: bool | None,
    programs: int | None,
) -> tuple[Any, ...]:
    """Plan the kernels; `programs` are the heads at work, None for all, with one window.

    Returns:
        tiles of near and of far kernels; programs and further arguments of the near kernel; of the far kernel, with
        arguments for each pass; of the rest kernel, None where no token has more than k groups; of the copy kernel,
        None where far keys are read in the text; and whether the near kernel computes everything.
    """
    batch, heads, length, head_size = query.shape
    kv_heads, size = key.shape[1], max(16, power_of_two(head_size))
    copied = copies_pay(query, key, extent) if copied is None else copied
    window, num_sinks = min(rule.window, length), min(rule.num_sinks, length)
    reach = length if rule.sliding_window is None else min(rule.sliding_window, length)
    capped, apart = scoring.softcap is not None, programs is not None
    of_keys = (*key.stride()[:3], *value.stride()[:3])
    strides, sizes = (*query.stride()[:3], *of_keys, length), (heads // kv_heads, head_size, size)
    pairs = (*scoring.in_base_two(), window, reach, num_sinks, heads, *rule.growth)
    near, far = NEAR_TILES[max(64, size)], _far_tiles(query.device, copied)[max(64, size)]
    near_sizes = (*sizes, near.queries, near.keys, capped, apart)
    groups = max(FEWEST_GROUPS, power_of_two(extent.num_groups))
    one, entries = extent.top_k == 1 and not extent.beyond, entries_of(length, extent)
    counts = (*strides, entries, entries if one else length, *pairs, extent.num_groups)
    passes = tuple(
        (*counts, *sizes, far.queries, far.keys, groups, one, rank > 0, copied, capped, reach < length, apart)
        for rank in range(extent.top_k)
    )
    near_grid = (tiles_of(length, near.queries), heads if programs is None else programs, batch)
    far_grid = (tiles_of(length, far.queries) + extent.num_groups, *near_grid[1:])
    rest = near_grid, (*strides, *pairs, extent.num_groups, *near_sizes)
    copy_grid = (tiles_of(entries, ROWS_COPIED), kv_heads, batch)
    copy = copy_grid, (*of_keys, entries, kv_heads, extent.num_groups, head_size, size, ROWS_COPIED)
    reaches = extent.top_k == 0 or (not apart and window >= reach - 1)
    near_plan, far_plan = (near_grid, (*strides, *pairs, *near_sizes)), (far_grid, passes)
    return near, far, near_plan, far_plan, rest if extent.beyond else None, copy if copied else None, reaches


def grouped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    *,
    extent: Extent,
    stage: Stage = unmeasured,
    copied: bool | None = None,
    heads: Heads | None = None,
    results: tuple[Tensor, Tensor] | None = None,
    near_known: bool = False,
) -> tuple[Tensor, Tensor]:
    """Exact Focus in Triton, for as many queries as keys and without padding.

    Args:
        extent: K, k and whether tokens may have more; a wrong one gives wrong results. With k = 0 no token has a group:
            the window and the sinks are all that is computed. Nothing waits for the device.
        stage: for timing, as a `StageClock` does: called with "local", "sort", "gather" or "same_group", returns a
            context manager for that part.
        copied: read far keys from copies; by default where they pay.
        heads: those to compute, with windows in place of the rule's; all of them with one window when None.
        results: `new_results` of these heads and others; new when None.
        near_known: the results hold what a call with k = 0 has left for these heads, which is not computed again.
    """
    shapes = (query.shape, query.stride(), key.shape, key.stride(), value.stride())
    pairs = (rule.window, rule.num_sinks, rule.sliding_window, rule.growth, scoring.scale, scoring.softcap)
    programs = None if heads is None else heads.query.shape[0]
    groups = (extent.num_groups, extent.top_k, extent.beyond, copied, programs)
    membership = membership.contiguous()
    starts = aligned(query, key, value, membership)
    launches = alike("attention", query.device, query.dtype, *shapes, *pairs, *groups, starts)
    if launches.numbers is None:
        launches.numbers = _planned(query, key, value, rule, scoring, extent, copied, programs)
    near, far, near_plan, (far_grid, passes), rest, copy, reaches = launches.numbers
    out_BTHD, lse = new_results(query) if results is None else results
    by_head = (lse, lse) if heads is None else (heads.query, heads.windows)
    if not near_known:
        grid, numbers = near_plan
        with stage("local"):
            arguments = (query, key, value, out_BTHD, lse, *by_head, *numbers)
            launches.run("near", near_kernel, grid, arguments, near.warps, near.stages)
    if reaches:
        return out_BTHD.transpose(1, 2), lse
    with stage("sort"):
        order = sort_by_group(membership, extent)
    far_key: Any = key
    far_value: Any = value
    if copy is not None:
        grid, numbers = copy
        with stage("gather"):
            room = (2, key.shape[0] * key.shape[1] * order.key_token.shape[1], key.shape[3])  # (B * G * E, D) each
            copies = torch.empty(room, dtype=key.dtype, device=key.device).unbind()
            arguments = (key, value, *copies, order.key_token, order.bounds, *numbers)
            launches.run("copy", copy_kernel, grid, arguments, COPY_WARPS, 1)
            tile = [far.keys, max(16, power_of_two(query.shape[3]))]
            far_key, far_value = (TensorDescriptor.from_tensor(x, tile) for x in copies)
    tensors = (query, key, value, far_key, far_value, out_BTHD, lse, membership)
    sorted_keys = (order.key_token, order.key_bits, order.bounds)
    asked = (order.key_token, order.key_token, order.bounds)
    with stage("same_group"):
        for rank, numbers in enumerate(passes):
            if len(order.bounds) > 1:  # some tokens have several groups
                asked = (order.query_token[rank], order.query_place[rank], order.bounds[1 + rank])
            arguments = (*tensors, *sorted_keys, *asked, *by_head, *numbers)
            launches.run(f"far {rank}", far_kernel, far_grid, arguments, far.warps, far.stages, far.registers)
        if rest is not None:
            grid, numbers = rest
            asked = (membership, order.query_token[-1], order.bounds[-1])
            arguments = (query, key, value, out_BTHD, lse, *asked, *by_head, *numbers)
            launches.run("rest", rest_kernel, grid, arguments, near.warps, near.stages)
    return out_BTHD.transpose(1, 2), lse


def new_results(query: Tensor) -> tuple[Tensor, Tensor]:
    """Room for the output (B, T, H, D) and the logsumexp (B, H, T) of a call."""
    batch, heads, length, head_size = query.shape
    return query.new_empty(batch, length, heads, head_size), query.new_empty(query.shape[:3], dtype=torch.float32)
