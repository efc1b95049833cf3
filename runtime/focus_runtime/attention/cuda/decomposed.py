"""Exact Focus on a GPU, any k, from flash kernels that return logsumexp: group, local and sink parts, merged.

Same group (`_same_group`): tokens packed by group, one causal varlen call, O(k^2 T^2 / K). A pair that shares several
groups must count once. With k = 2 only pairs of the same two groups are counted twice, so one call over such pairs is
taken off again (`pack_pairs`), in logsumexp space; what is taken off is contained in what stays, so nothing
cancels. With k >= 3 a pair counts in its lowest shared group only (`_lowest_shared_group`).

Local and not the same group: for small windows the masked blocks of attention/decomposed.py, which copy nothing; for
large ones one windowed call that hides pairs, as k >= 3 does, by extra head dimensions: query and key carry flags there
whose product is so low a score that the pair's weight is exactly 0. A query with no other pair gets a logsumexp far
below any real one, which is read as -inf. Extra dimensions copy query, key and value.

Sinks beyond the window and in no shared group: s scores a query in plain torch. Memory is linear in T.
Tested on the CPU through `varlen.PLAIN`; forward only: gradients are decomposed_backward.py's, on any device.

Shape suffixes: N = B * T tokens of all texts, M entries of a packing (M = N where entries are tokens), H query heads
(Hq), G key-value heads (Hkv), D head size, K groups, S sinks, P parts; b, t rows of a slab, r = H / G.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention.clock import Stage, unmeasured
from focus_runtime.attention.decomposed import cross_group_local
from focus_runtime.attention.reference import Scoring
from focus_runtime.attention.varlen import LARGEST_HEAD, Kernel, best_kernel, unusable
from focus_runtime.errors import InputError
from focus_runtime.gpu import attention_fits, tried
from focus_runtime.mask.dense import group_bits, group_numbers, membership_extent, narrow
from focus_runtime.mask.rule import Extent, PairRule

HIDE = 4096.0  # query and key carry this factor each: exact in fp16 and bf16, and 2^24 together in the fp32 score
BLOCKS_UP_TO = 512  # window; an estimate from bytes moved, to be measured on a GPU
MERGE_ELEMENTS = 1 << 25  # elements of one head-by-token slab merged at once, in fp32
SINK_ELEMENTS = 1 << 25


@dataclass(frozen=True, slots=True)
class Packing:
    """Entries of N tokens in sorted order.

    Attributes:
        token: (M,) int64, the token of each entry.
        rank: (M,) int64, which of the token's memberships it stands for, 0 for the lowest group.
        cu_lengths: (S + 1,) int32, first entry of each sequence; entries from the last number on are unused.
        slots: (N, k) int64, where each token's entries stand.
        held: (N, k) bool, False for unused entries; None when all are used.
    """

    token: Tensor
    rank: Tensor
    cu_lengths: Tensor
    slots: Tensor
    held: Tensor | None


def pack(category: Tensor, num_categories: int, *, uniform: bool) -> Packing:
    """Sort entries by category, keeping token order inside each.

    Args:
        category: (N, k) int64 from 0 to `num_categories` - 1, or -1 for an unused entry; no token twice in one.
        uniform: True promises that no entry is unused.
    """
    entries, top_k = category.numel(), category.shape[1]
    keys_M = category.flatten()
    if not uniform:
        keys_M = torch.where(keys_M < 0, num_categories, keys_M)
    # radix sort reads the key byte by byte, so fewer bytes are fewer passes
    kind = torch.uint8 if num_categories < 256 else torch.int16 if num_categories < 1 << 15 else torch.int32
    ordered_M, entry_M = torch.sort(keys_M.to(kind), stable=True)
    bounds_C = torch.arange(num_categories + 1, dtype=torch.int32, device=keys_M.device)  # and one past the last
    cu_lengths = torch.searchsorted(ordered_M.to(torch.int32), bounds_C, out_int32=True)
    slots_M = torch.empty_like(entry_M).scatter_(0, entry_M, torch.arange(entries, device=keys_M.device))
    held_Nk = None if uniform else category >= 0
    return Packing(entry_M // top_k, entry_M % top_k, cu_lengths, slots_M.view(-1, top_k), held_Nk)


def pack_groups(membership: Tensor, extent: Extent) -> Packing:
    """One sequence per batch row and group: (B, T) bit sets."""
    numbers_Nk = group_numbers(membership.flatten(), extent.top_k)
    category_Nk = _by_batch(numbers_Nk, membership.shape, extent.num_groups)
    return pack(category_Nk, membership.shape[0] * extent.num_groups, uniform=extent.uniform)


def pack_pairs(membership: Tensor, extent: Extent) -> Packing:
    """One sequence per batch row and set of exactly two groups; tokens with another number of groups take no part."""
    numbers_N2 = group_numbers(membership.flatten(), 2)
    low_N1, high_N1 = numbers_N2[:, :1], numbers_N2[:, 1:]
    pair_N1 = torch.where((low_N1 < 0) | (high_N1 < 0), -1, high_N1 * (high_N1 - 1) // 2 + low_N1)
    num_pairs = max(1, extent.num_groups * (extent.num_groups - 1) // 2)
    category_N1 = _by_batch(pair_N1, membership.shape, num_pairs)
    return pack(category_N1, membership.shape[0] * num_pairs, uniform=extent.uniform)


def _by_batch(number_Nk: Tensor, shape: torch.Size, count: int) -> Tensor:
    """Numbers that differ between the rows of a (B, T) batch; -1 stays -1."""
    if shape[0] == 1:
        return number_Nk
    batch_N1 = torch.arange(shape[0], device=number_Nk.device)[:, None].expand(shape).reshape(-1, 1)
    return torch.where(number_Nk < 0, -1, number_Nk + batch_N1 * count)


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
    """Combine parts by their logsumexps, in fp32 and in slabs."""
    heads, size = parts[0].out.shape[1:]
    out_NHD = parts[0].out.new_empty(num_tokens, heads, size)
    lse_NH = parts[0].lse.new_empty(num_tokens, heads)
    step = max(1, MERGE_ELEMENTS // (heads * size))
    for start in range(0, num_tokens, step):
        tokens = slice(start, min(start + step, num_tokens))
        rows = [part.rows(tokens) for part in parts]
        lses_PtH = torch.stack([lse_tH for _, lse_tH in rows])
        top_tH = lses_PtH.amax(dim=0)  # a part taken off is never above the parts that contain it
        weights_PtH = torch.exp(lses_PtH - top_tH.masked_fill(top_tH == float("-inf"), 0.0))
        for part, weight_tH in zip(parts, weights_PtH, strict=True):
            if part.sign < 0:
                weight_tH.neg_()
        total_tH = weights_PtH.sum(dim=0)
        weights_PtH = weights_PtH / total_tH.clamp_min(torch.finfo(total_tH.dtype).tiny)
        mixed_tHD = rows[0][0] * weights_PtH[0][..., None]
        for (out_tHD, _), weight_tH in zip(rows[1:], weights_PtH[1:], strict=True):
            mixed_tHD.addcmul_(out_tHD.to(mixed_tHD.dtype), weight_tH[..., None])
        out_NHD[tokens] = mixed_tHD
        lse_NH[tokens] = top_tH + torch.log(total_tH)
    return out_NHD, lse_NH


@dataclass(frozen=True, slots=True)
class FlashCall:
    """One call of `flash_decomposition`; `flat` are query (N, H, D), key and value (N, G, D)."""

    kernel: Kernel
    flat: tuple[Tensor, Tensor, Tensor]
    membership: Tensor
    extent: Extent
    scale: float
    stage: Stage = unmeasured

    @property
    def length(self) -> int:
        """T."""
        return self.membership.shape[1]

    @property
    def can_hide(self) -> bool:
        """Whether a kernel can hold the head size and a dimension for each group."""
        return head_size_needed(self.flat[0].shape[2], self.extent.num_groups) <= LARGEST_HEAD

    @property
    def accumulates(self) -> torch.dtype:
        """Type of logsumexps and of what is computed in plain torch."""
        return torch.promote_types(self.flat[0].dtype, torch.float32)

    def gathered(self, packing: Packing) -> tuple[Tensor, Tensor, Tensor]:
        """Query (M, H, D), key and value (M, G, D) of the entries of a packing."""
        with self.stage("gather"):
            q_MHD, k_MGD, v_MGD = (x.index_select(0, packing.token) for x in self.flat)
        return q_MHD, k_MGD, v_MGD

    def hiding(
        self,
        tensors: tuple[Tensor, Tensor, Tensor],
        hide_MK: Tensor,
        own_MK: Tensor,
        cu_lengths: Tensor,
        window: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """A varlen call with hidden pairs; the logsumexp of a query that sees no other pair is -inf.

        Args:
            tensors: query (M, H, D), key and value (M, G, D).
            hide_MK: bool, groups whose keys each query may not see.
            own_MK: bool, groups each key is hidden by.
            cu_lengths: int32 bounds of the sequences within the entries, as flash kernels take them.
            window: pairs with i - j <= window within a sequence are allowed; all causal ones when None.

        Returns:
            out (M, H, D); logsumexp (H, M).
        """
        size = tensors[0].shape[2]
        longer = _with_dimensions(*tensors, hide_MK, own_MK)
        out_MHD, lse_HM = self.kernel.run(*longer, cu_lengths, self.length, self.scale, window)
        return out_MHD[..., :size], lse_HM.masked_fill(lse_HM < -0.5 * HIDE * HIDE * self.scale, float("-inf"))


def _with_dimensions(
    q_MHD: Tensor, k_MGD: Tensor, v_MGD: Tensor, hide_MK: Tensor, own_MK: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Append head dimensions so that pairs with a common flag in `hide` (query) and `own` (key) weigh nothing."""
    extra = hide_MK.shape[1] + -(q_MHD.shape[2] + hide_MK.shape[1]) % 8

    def appended(x: Tensor, flags_MK: Tensor, factor: float) -> Tensor:
        longer = x.new_zeros(*x.shape[:2], x.shape[2] + extra)
        longer[..., : x.shape[2]] = x
        longer[..., x.shape[2] : x.shape[2] + flags_MK.shape[1]] = (flags_MK.to(x.dtype) * factor)[:, None]
        return longer

    return appended(q_MHD, hide_MK, -HIDE), appended(k_MGD, own_MK, HIDE), torch.nn.functional.pad(v_MGD, (0, extra))


def _by_slot(out: Tensor, lse: Tensor, packing: Packing, sign: int = 1) -> list[Part]:
    held = packing.held
    return [
        Part(out, lse, packing.slots[:, j], None if held is None else held[:, j], sign)
        for j in range(packing.slots.shape[1])
    ]


def _same_group(call: FlashCall) -> list[Part]:
    """Attention inside groups for k = 1 and k = 2; pairs of the same two groups, counted twice, are taken off once."""
    parts = _one_call(call, pack_groups)
    return parts + _one_call(call, pack_pairs, sign=-1) if call.extent.top_k == 2 else parts


def _one_call(call: FlashCall, pack: Callable[[Tensor, Extent], Packing], sign: int = 1) -> list[Part]:
    with call.stage("sort"):
        packing = pack(call.membership, call.extent)
    packed = call.gathered(packing)
    with call.stage("same_group"):
        out_MHD, lse_HM = call.kernel.run(*packed, packing.cu_lengths, call.length, call.scale, None)
    return _by_slot(out_MHD, lse_HM, packing, sign)


def _lowest_shared_group(call: FlashCall) -> list[Part]:
    """Attention inside groups for k >= 3, every pair counted in its lowest shared group only."""
    with call.stage("sort"):
        packing = pack_groups(call.membership, call.extent)
    packed = call.gathered(packing)
    with call.stage("same_group"):
        groups_M = call.membership.flatten().index_select(0, packing.token)
        number_M = group_numbers(call.membership.flatten(), call.extent.top_k)[packing.token, packing.rank]
        own_MK = group_bits(groups_M, call.extent.num_groups)
        lower_MK = own_MK & (torch.arange(call.extent.num_groups, device=own_MK.device) < number_M[:, None])
        out_MHD, lse_HM = call.hiding(packed, lower_MK, own_MK, packing.cu_lengths)
    return _by_slot(out_MHD, lse_HM, packing)


def _local(call: FlashCall, rule: PairRule) -> Part:
    """Near pairs without a shared group."""
    batch, length = call.membership.shape
    rule = replace(rule, window=min(rule.window, length - 1))
    if rule.window > BLOCKS_UP_TO and call.can_hide and not rule.grows:  # the call has one window
        return _local_by_hiding(call, rule.window)
    small_BT = narrow(call.membership, call.extent.num_groups)
    out_NHD = torch.empty_like(call.flat[0])
    lse_NH = torch.empty(out_NHD.shape[:2], dtype=call.accumulates, device=out_NHD.device)
    for b in range(batch):
        rows = slice(b * length, (b + 1) * length)
        text = (call.flat[0][rows], call.flat[1][rows], call.flat[2][rows])
        cross_group_local(text, small_BT[b], rule, call.scale, (out_NHD[rows], lse_NH[rows]))
    return Part(out_NHD, lse_NH.t())


def _local_by_hiding(call: FlashCall, window: int) -> Part:
    batch, length = call.membership.shape
    bits_NK = group_bits(call.membership.flatten(), call.extent.num_groups)
    cu_lengths = torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device=bits_NK.device)
    return Part(*call.hiding(call.flat, bits_NK, bits_NK, cu_lengths, window if window < length - 1 else None))


def _sinks(call: FlashCall, rule: PairRule) -> Part:
    """Sinks beyond the window that share no group with the query."""
    batch, length = call.membership.shape
    num_sinks = min(rule.num_sinks, length)
    q_BTHD, k_BTGD, v_BTGD = (x.unflatten(0, (batch, length)) for x in call.flat)
    heads, size, kv_heads = q_BTHD.shape[2], q_BTHD.shape[3], k_BTGD.shape[2]
    kind = call.accumulates
    k_BSGD, v_BSGD = k_BTGD[:, :num_sinks].to(kind), v_BTGD[:, :num_sinks].to(kind)
    out_BTHD = q_BTHD.new_empty(q_BTHD.shape)
    lse_HBT = torch.empty(heads, batch, length, dtype=kind, device=q_BTHD.device)
    sink_S = torch.arange(num_sinks, device=q_BTHD.device)
    step = max(1, SINK_ELEMENTS // (batch * heads * max(size, num_sinks)))
    for start in range(0, length, step):
        rows = slice(start, min(start + step, length))
        position_t = torch.arange(rows.start, rows.stop, device=q_BTHD.device)
        far_tS = position_t[:, None] - sink_S > rule.near(position_t)[:, None]
        apart_BtS = (call.membership[:, rows, None] & call.membership[:, None, :num_sinks]) == 0
        q_BtGrD = q_BTHD[:, rows].to(kind).unflatten(2, (kv_heads, heads // kv_heads))
        scores_BtGrS = torch.einsum("bthrd,bshd->bthrs", q_BtGrD, k_BSGD) * call.scale
        scores_BtGrS = scores_BtGrS.masked_fill(~(far_tS & apart_BtS)[:, :, None, None, :], float("-inf"))
        lse_BtGr1 = torch.logsumexp(scores_BtGrS, dim=-1, keepdim=True)
        weights_BtGrS = torch.exp(scores_BtGrS - lse_BtGr1.masked_fill(lse_BtGr1 == float("-inf"), 0.0))
        mixed_BtGrD = torch.einsum("bthrs,bshd->bthrd", weights_BtGrS, v_BSGD)
        out_BTHD[:, rows] = mixed_BtGrD.flatten(2, 3).to(out_BTHD.dtype)
        lse_HBT[:, :, rows] = lse_BtGr1.flatten(2).permute(2, 0, 1)
    return Part(out_BTHD.flatten(0, 1), lse_HBT.flatten(1))


def head_size_needed(head_size: int, num_groups: int) -> int:
    """Head dimensions of a call that hides pairs: those of the head and one for each group, in whole eights."""
    return head_size + num_groups + -(head_size + num_groups) % 8


def flash_decomposition(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scale: float,
    *,
    kernel: Kernel | None = None,
    extent: Extent | None = None,
    stage: Stage | None = None,
) -> tuple[Tensor, Tensor]:
    """Exact Focus attention from flash kernels, for as many queries as keys, without padding or softcap.

    Args:
        scale: factor on the scores, above 0.
        kernel: the varlen kernel; by default the fastest for these tensors.
        extent: what is known of the memberships. Given, nothing waits for the device, and a CUDA graph can hold the
            call; a wrong one gives wrong results. Looked up with one host synchronisation when None.
        stage: for timing, as a `StageClock` does: called with "sort", "gather", "same_group", "local", "sinks" or
            "merge", returns a context manager for that part.

    Raises:
        InputError: no flash kernel runs such tensors, or head size and groups together exceed what one can hold.
    """
    stage = stage or unmeasured
    if kernel is None:
        kernel = best_kernel(query.device, query.dtype, query.shape[-1])
    if extent is None:
        extent = membership_extent(membership)
    batch, length = membership.shape
    q_NHD, k_NGD, v_NGD = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    call = FlashCall(kernel, (q_NHD, k_NGD, v_NGD), membership, extent, scale, stage)
    if (extent.top_k >= 3 and not call.can_hide) or scale <= 0:
        raise InputError(
            f"backend 'decomposed' was given head size {query.shape[-1]}, {extent.num_groups} groups, "
            f"{extent.top_k} of them a token, scale {scale}",
            expected=f"at most 2 groups a token, or head size and groups of {LARGEST_HEAD} in all; scale above 0",
            fix='use backend="flex" or backend="auto"',
        )
    parts = _lowest_shared_group(call) if extent.top_k >= 3 else _same_group(call)
    with stage("local"):
        parts.append(_local(call, rule))
    if rule.num_sinks > 0 and rule.window < length - 1:
        with stage("sinks"):
            parts.append(_sinks(call, rule))
    with stage("merge"):
        out_NHD, lse_NH = merge_parts(parts, batch * length)
    return out_NHD.unflatten(0, (batch, length)).transpose(1, 2), lse_NH.unflatten(0, (batch, length)).transpose(1, 2)


GROUPED = "grouped attention"  # name of the Triton kernels in warnings
LARGEST_WINDOW = 4096  # tokens: their far keys begin where one window of keys has been looked through


def grouped_fits(query: Tensor, key: Tensor, value: Tensor, window: int, scoring: Scoring) -> bool:
    """Whether the Triton kernels take such a call, of as many queries as keys, without padding and gradients."""
    reaches = window <= LARGEST_WINDOW or window >= key.shape[2] - 1
    return reaches and scoring.scale > 0 and attention_fits(GROUPED, query, key, value)


def decomposition_fits(query: Tensor, key: Tensor, extent: Extent, *, window: int, scoring: Scoring) -> bool:
    """True when `gpu_decomposition` can run, for a call without padding and gradients.

    Args:
        extent: K and k; without Triton, groups take head dimensions of their own for k of 3 and more, and no token
            may have more than k.
        scoring: scale and softcap; without Triton there is none.
    """
    if query.shape[2] != key.shape[2]:
        return False
    if grouped_fits(query, key, key, window, scoring):
        return True
    size = query.shape[-1]
    room = (not extent.beyond and extent.top_k < 3) or head_size_needed(size, extent.num_groups) <= LARGEST_HEAD
    return scoring.softcap is None and room and unusable(query.device, query.dtype, size) is None


@functools.cache
def triton_kernels() -> tuple[Any, Any]:
    """The modules that need Triton, grouped.py and pairwise.py: an import statement takes a microsecond each time."""
    from focus_runtime.attention.cuda import grouped, pairwise

    return grouped, pairwise


def gpu_decomposition(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    *,
    extent: Extent | None = None,
    stage: Stage | None = None,
) -> tuple[Tensor, Tensor]:
    """Exact Focus attention on a GPU, for as many queries as keys and without padding."""
    known = membership_extent(membership) if extent is None else extent
    if grouped_fits(query, key, value, rule.near(key.shape[2] - 1), scoring):
        grouped, pairwise = triton_kernels()

        def run() -> tuple[Tensor, Tensor]:
            if pairwise.pairwise_pays(query, known.num_groups, known.top_k):
                sets_SBT, lse, groups = membership.contiguous()[None], grouped.new_lse(query), known.num_groups
                tensors = (query, key, value, sets_SBT)
                out_BTHD = pairwise.pairwise_attention(*tensors, rule, scoring, num_groups=groups, stage=stage, lse=lse)
                return out_BTHD.transpose(1, 2), lse
            return grouped.grouped_attention(query, key, value, membership, rule, scoring, extent=known, stage=stage)

        result = tried(GROUPED, query, run)
        if result is not None:
            return result
    if known.beyond or known.top_k == 0:
        known = membership_extent(membership)
    if scoring.softcap is not None:
        raise InputError(
            "backend 'decomposed' was given a softcap, which the flash kernels here do not have",
            expected="no softcap, or Triton and tensors in half precision",
            fix='use backend="auto"',
        )
    return flash_decomposition(query, key, value, membership, rule, scoring.scale, stage=stage, extent=known)
