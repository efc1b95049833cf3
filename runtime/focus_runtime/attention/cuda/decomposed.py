"""Exact Focus on a GPU, any k, from flash kernels that return logsumexp: group, local and sink parts, merged.

Same group: tokens packed by group, one causal varlen call, O(k^2 T^2 / K). A pair that shares several groups must
count once. With k = 2 only pairs of the same two groups are counted twice, so one call over such pairs is taken off
again, in logsumexp space; what is taken off is contained in what stays, so nothing cancels. With k >= 3 a pair counts
in its lowest shared group only.

Local and not the same group: one windowed call. Both devices hide pairs by extra head dimensions: query and key carry
flags there whose product is so low a score that the pair's weight is exactly 0. A query with no other pair gets a
logsumexp far below any real one, which is read as -inf.

Sinks beyond the window and in no shared group: s scores a query in plain torch. Memory is linear in T.
Tested on the CPU through `varlen.PLAIN`; forward only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.attention.cuda.packing import (
    Extent,
    Packing,
    group_bits,
    group_numbers,
    membership_extent,
    pack_groups,
    pack_pairs,
)
from focus_runtime.attention.cuda.varlen import LARGEST_HEAD, Kernel, best_kernel
from focus_runtime.errors import InputError

HIDE = 4096.0  # query and key carry this factor each: exact in fp16 and bf16, and 2^24 together in the fp32 score
MERGE_ELEMENTS = 1 << 25  # elements of one head-by-token slab merged at once, in fp32
SINK_ELEMENTS = 1 << 25
Stage = Callable[[str], AbstractContextManager[None]]


def _unmeasured(name: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Part:
    """Attention over some of the keys, one entry per row.

    Attributes:
        out: (M, Hq, D); lse: (Hq, M), -inf for entries without keys.
        slots: (N,) int64, the entry of each token; None when entries are tokens.
        held: (N,) bool, False for tokens without an entry; None when all have one.
        sign: 1, or -1 for a set that other parts counted once too often.
    """

    out: Tensor
    lse: Tensor
    slots: Tensor | None = None
    held: Tensor | None = None
    sign: int = 1

    def rows(self, tokens: slice) -> tuple[Tensor, Tensor]:
        """out (n, Hq, D) and logsumexp (n, Hq) of some tokens."""
        if self.slots is None:
            return self.out[tokens], self.lse[:, tokens].transpose(0, 1)
        entries = self.slots[tokens]
        out, lse = self.out.index_select(0, entries), self.lse.index_select(1, entries).transpose(0, 1)
        if self.held is None:
            return out, lse
        missing = ~self.held[tokens]  # what the kernel left there may be anything, NaN included
        return out.masked_fill(missing[:, None, None], 0.0), lse.masked_fill(missing[:, None], float("-inf"))


def merge_parts(parts: list[Part], num_tokens: int) -> tuple[Tensor, Tensor]:
    """Combine parts by their logsumexps, in fp32 and in slabs.

    Returns:
        out (N, Hq, D) in the parts' dtype, 0 without keys; logsumexp (N, Hq), -inf there.
    """
    heads, size = parts[0].out.shape[1:]
    out = parts[0].out.new_empty(num_tokens, heads, size)
    total_lse = parts[0].lse.new_empty(num_tokens, heads)
    step = max(1, MERGE_ELEMENTS // (heads * size))
    for start in range(0, num_tokens, step):
        tokens = slice(start, min(start + step, num_tokens))
        rows = [part.rows(tokens) for part in parts]
        lses = torch.stack([lse for _, lse in rows])
        top = lses.amax(dim=0)  # a part taken off is never above the parts that contain it
        weights = torch.exp(lses - top.masked_fill(top == float("-inf"), 0.0))
        for part, weight in zip(parts, weights, strict=True):
            if part.sign < 0:
                weight.neg_()
        total = weights.sum(dim=0)
        weights = weights / total.clamp_min(torch.finfo(total.dtype).tiny)
        mixed = rows[0][0] * weights[0][..., None]
        for (part_out, _), weight in zip(rows[1:], weights[1:], strict=True):
            mixed.addcmul_(part_out.to(mixed.dtype), weight[..., None])
        out[tokens] = mixed
        total_lse[tokens] = top + torch.log(total)
    return out, total_lse


def _with_dimensions(
    query: Tensor, key: Tensor, value: Tensor, hide: Tensor, own: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Append head dimensions so that pairs with a common flag in `hide` (query) and `own` (key) weigh nothing.

    Args:
        query: (M, Hq, D); key, value: (M, Hkv, D); hide, own: (M, K) bool.
    """
    extra = hide.shape[1] + -(query.shape[2] + hide.shape[1]) % 8

    def appended(x: Tensor, flags: Tensor, factor: float) -> Tensor:
        longer = x.new_zeros(*x.shape[:2], x.shape[2] + extra)
        longer[..., : x.shape[2]] = x
        longer[..., x.shape[2] : x.shape[2] + flags.shape[1]] = (flags.to(x.dtype) * factor)[:, None]
        return longer

    return appended(query, hide, -HIDE), appended(key, own, HIDE), torch.nn.functional.pad(value, (0, extra))


def _hiding(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hide: Tensor,
    own: Tensor,
    cu_lengths: Tensor,
    max_length: int,
    scale: float,
    window: int | None,
) -> tuple[Tensor, Tensor]:
    """A varlen call with hidden pairs; the logsumexp of a query that sees no other pair is -inf."""
    longer = _with_dimensions(query, key, value, hide, own)
    out, lse = kernel.run(*longer, cu_lengths, max_length, scale, window)
    return out[..., : query.shape[2]], lse.masked_fill(lse < -0.5 * HIDE * HIDE * scale, float("-inf"))


def _by_slot(out: Tensor, lse: Tensor, packing: Packing, sign: int = 1) -> list[Part]:
    held = packing.held
    return [
        Part(out, lse, packing.slots[:, j], None if held is None else held[:, j], sign)
        for j in range(packing.slots.shape[1])
    ]


def _same_group(
    kernel: Kernel,
    flat: tuple[Tensor, Tensor, Tensor],
    membership: Tensor,
    extent: Extent,
    packing: Packing,
    scale: float,
    stage: Stage,
) -> list[Part]:
    length = membership.shape[1]
    with stage("gather"):
        packed = [x.index_select(0, packing.token) for x in flat]
    if extent.top_k >= 3:
        with stage("same_group"):
            groups = membership.flatten().index_select(0, packing.token)
            number = group_numbers(membership.flatten(), extent.top_k)[packing.token, packing.rank]
            own = group_bits(groups, extent.num_groups)
            lower = own & (torch.arange(extent.num_groups, device=own.device) < number[:, None])
            out, lse = _hiding(
                kernel, packed[0], packed[1], packed[2], lower, own, packing.cu_lengths, length, scale, None
            )
        return _by_slot(out, lse, packing)
    with stage("same_group"):
        out, lse = kernel.run(packed[0], packed[1], packed[2], packing.cu_lengths, length, scale, None)
    return _by_slot(out, lse, packing)


def _same_pair(
    kernel: Kernel, flat: tuple[Tensor, Tensor, Tensor], membership: Tensor, extent: Extent, scale: float, stage: Stage
) -> list[Part]:
    """Pairs of tokens with the same two groups, to be taken off once."""
    with stage("sort"):
        packing = pack_pairs(membership, extent)
    with stage("gather"):
        packed = [x.index_select(0, packing.token) for x in flat]
    with stage("same_group"):
        out, lse = kernel.run(packed[0], packed[1], packed[2], packing.cu_lengths, membership.shape[1], scale, None)
    return _by_slot(out, lse, packing, sign=-1)


def _local(
    kernel: Kernel, flat: tuple[Tensor, Tensor, Tensor], membership: Tensor, extent: Extent, window: int, scale: float
) -> Part:
    batch, length = membership.shape
    bits = group_bits(membership.flatten(), extent.num_groups)
    cu_lengths = torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device=bits.device)
    reach = window if window < length else None
    return Part(*_hiding(kernel, *flat, bits, bits, cu_lengths, length, scale, reach))


def _sinks(flat: tuple[Tensor, Tensor, Tensor], membership: Tensor, window: int, num_sinks: int, scale: float) -> Part:
    """Sinks beyond the window that share no group with the query."""
    batch, length = membership.shape
    query, key, value = (x.unflatten(0, (batch, length)) for x in flat)
    heads, size, kv_heads = query.shape[2], query.shape[3], key.shape[2]
    kind = torch.promote_types(query.dtype, torch.float32)
    key, value = key[:, :num_sinks].to(kind), value[:, :num_sinks].to(kind)
    out = query.new_empty(query.shape)
    lse = torch.empty(heads, batch, length, dtype=kind, device=query.device)
    column = torch.arange(num_sinks, device=query.device)
    step = max(1, SINK_ELEMENTS // (batch * heads * max(size, num_sinks)))
    for start in range(0, length, step):
        rows = slice(start, min(start + step, length))
        position = torch.arange(rows.start, rows.stop, device=query.device)
        far = position[:, None] - column > window
        apart = (membership[:, rows, None] & membership[:, None, :num_sinks]) == 0
        asked = query[:, rows].to(kind).unflatten(2, (kv_heads, heads // kv_heads))
        scores = torch.einsum("bthrd,bshd->bthrs", asked, key) * scale
        scores = scores.masked_fill(~(far & apart)[:, :, None, None, :], float("-inf"))
        part = torch.logsumexp(scores, dim=-1, keepdim=True)
        weights = torch.exp(scores - part.masked_fill(part == float("-inf"), 0.0))
        out[:, rows] = torch.einsum("bthrs,bshd->bthrd", weights, value).flatten(2, 3).to(out.dtype)
        lse[:, :, rows] = part.flatten(2).permute(2, 0, 1)
    return Part(out.flatten(0, 1), lse.flatten(1))


def _head_size_needed(head_size: int, num_groups: int) -> int:
    return head_size + num_groups + -(head_size + num_groups) % 8


def flash_decomposition(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    *,
    window: int,
    num_sinks: int = 0,
    scale: float,
    kernel: Kernel | None = None,
    extent: Extent | None = None,
    stage: Stage | None = None,
) -> tuple[Tensor, Tensor]:
    """Exact Focus attention from flash kernels. Shapes as in `focus_attention`, with Tq = Tk, no padding, no softcap.

    Args:
        kernel: the varlen kernel; by default the fastest for these tensors.
        extent: what is known of the memberships. Given, nothing waits for the device, and a CUDA graph can hold the
            call; a wrong one gives wrong results. Looked up with one host synchronisation when None.
        stage: for timing, as a `StageClock` does: called with "sort", "gather", "same_group", "local", "sinks" or
            "merge", returns a context manager for that part.

    Returns:
        out (B, H, T, D), strided as (B, T, H, D); logsumexp (B, H, T) fp32.

    Raises:
        InputError: no flash kernel runs such tensors, or head size and groups together exceed what one can hold.
    """
    stage = stage or _unmeasured
    if kernel is None:
        kernel = best_kernel(query.device, query.dtype, query.shape[-1])
    if extent is None:
        extent = membership_extent(membership)
    if _head_size_needed(query.shape[-1], extent.num_groups) > LARGEST_HEAD or scale <= 0:
        raise InputError(
            f"backend 'decomposed' was given head size {query.shape[-1]}, {extent.num_groups} groups, scale {scale}",
            expected=f"head size and groups together at most {LARGEST_HEAD}, a scale above 0",
            fix='use backend="flex" or backend="auto"',
        )
    batch, length = membership.shape
    query, key, value = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    flat = (query, key, value)
    with stage("sort"):
        packing = pack_groups(membership, extent)
    parts = _same_group(kernel, flat, membership, extent, packing, scale, stage)
    if extent.top_k == 2:
        parts += _same_pair(kernel, flat, membership, extent, scale, stage)
    with stage("local"):
        parts.append(_local(kernel, flat, membership, extent, window, scale))
    if num_sinks > 0 and window < length - 1:
        with stage("sinks"):
            parts.append(_sinks(flat, membership, window, min(num_sinks, length), scale))
    with stage("merge"):
        out, lse = merge_parts(parts, batch * length)
    return out.unflatten(0, (batch, length)).transpose(1, 2), lse.unflatten(0, (batch, length)).transpose(1, 2)
