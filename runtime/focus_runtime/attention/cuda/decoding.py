"""Focus for one new token on a GPU: keys in chunks side by side, read only where the query may look.

`chunk_kernel` computes one chunk of keys for the query heads of one key head, `join_kernel` joins the chunks by their
logsumexps. Nothing waits for the device, so a decode step can be one CUDA graph.

Shape suffixes: r query heads of a key head, n keys of a tile, d head size, c chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.attention.cuda.triton_kernels.decoding import chunk_kernel, join_kernel
from focus_runtime.attention.scoring import Scoring
from focus_runtime.gpu.launch import aligned, alike, multiples, power_of_two, tiles_of
from focus_runtime.mask.rule import PairRule

FEWEST_ROWS = 16  # of a matrix product
KEYS = 64  # of a tile
CHUNKS = 512  # programs over all key heads and texts, about: enough to fill a large GPU
WARPS, STAGES = 4, 2


@dataclass(frozen=True, slots=True, eq=False)
class StepHeads:
    """What each key head, or each query head, sees.

    Attributes:
        sets: (G,) or (H,) int32, which of several memberships is the head's.
        windows: (G,) or (H,) int32; one that no text is longer than makes it full attention.
    """

    sets: Tensor
    windows: Tensor


def decode_on_gpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    settings: StepHeads | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention of the newest token.

    Args:
        query: (B, H, 1, D) in half precision; key, value: (B, G, T, D); the last dimension contiguous.
        membership: (B, T) int64 bit sets, or (S, B, T) of several top-k; the last dimension contiguous.
        rule: window and sinks.
        scoring: scale and softcap.
        settings: memberships and windows of the heads; the only one and the rule's when None.

    Returns:
        out (B, H, 1, D), zero where the query has no key; logsumexp (B, H, 1) fp32, -inf there.
    """
    out, parts = decoded_on_gpu(query, key, value, membership, rule, scoring, settings)
    batch, heads = query.shape[:2]
    return out, parts[-batch * heads :].view(batch, heads, 1)


def decoded_on_gpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    settings: StepHeads | None = None,
) -> tuple[Tensor, Tensor]:
    """The same without a view of the logsumexps, which takes time in every layer of a decode step.

    Args:
        query, key, value, membership, rule, scoring, settings: as in `decode_on_gpu`.

    Returns:
        out (B, H, 1, D); what the kernels left, whose last B * H fp32 are the logsumexps.
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
