"""Exact Focus for any k from flash calls alone: attention inside groups, across groups nearby, and to sinks.

Same group: the tokens of one group, in text order, are an ordinary causal sequence. With several groups a token, one
call per group counts a pair once for every group it shares, and `inclusion_exclusion` puts that right: over all sets U
of groups, calls on the tokens that belong to all of U count with sign (-1)^(|U|+1). For k = 1 that is one call per
group, for k = 2 the calls per group less the calls per pair of groups. What is taken away was counted before, so the
difference is stable: amplification at most 2^(k-1), never full attention minus a complement (METHOD section 4).

Local: short blocks of queries against the keys in reach, pairs that share a group masked. Sinks: s keys a query.
Everything is merged by logsumexp. Memory is linear in T, and no tensor is laid out anew: rows of all heads are gathered
and scattered together. On a GPU in half precision the same pairs are computed by the Triton kernels of cuda/
(`gpu_decomposition`), which wait for nothing.

Shape suffixes: T tokens, H query heads (Hq), G key-value heads (Hkv), D head size; N blocks of b queries with t keys in
reach, n tokens of one set of groups, S sinks. One text at a time, so B = 1 is written as 1.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention.clock import Stage, unmeasured
from focus_runtime.attention.flash import causal_flash, masked_flash
from focus_runtime.attention.reference import Scoring
from focus_runtime.errors import InputError
from focus_runtime.gpu import attention_fits, tried
from focus_runtime.mask.allowed_pairs import membership_extent, narrow
from focus_runtime.mask.rule import Extent, PairRule

MOST_CALLS = 512  # sets of groups beyond which the calls cost more than dense attention at any length


def inclusion_exclusion(membership: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Every set of groups that some token of one text has in full: its bits, its sign, and the tokens that have it."""
    signatures, code_T = torch.unique(membership, return_inverse=True)
    for subset in subsets_of(signatures.tolist()):
        holders = (signatures & subset) == subset
        yield subset, 1 if subset.bit_count() % 2 else -1, torch.nonzero(holders[code_T]).flatten()


def subsets_of(signatures: list[int]) -> list[int]:
    """Non-empty sub-bit-sets of some bit sets, each once, ascending by size; an InputError beyond `MOST_CALLS`."""
    subsets: set[int] = set()
    for signature in signatures:
        part = signature
        while part > 0:
            subsets.add(part)
            part = (part - 1) & signature
            if len(subsets) > MOST_CALLS:
                raise InputError(
                    f"membership makes more than {MOST_CALLS} sets of groups, one call each in backend 'decomposed'",
                    expected="fewer groups a token",
                    fix='use backend="auto" or "masked"',
                )
    return sorted(subsets, key=lambda part: (part.bit_count(), part))


LOCAL_BLOCK = 64  # queries per local block; 32 to 256 were timed at w = 128, see LOG.md
MOST_PAIRS = 1 << 26  # of a piece: its masks take some bytes each
PIECE_GROWTH = 4  # by this part of its first window may that of a piece's last query be longer


@dataclass(frozen=True, slots=True)
class LocalPiece:
    """Queries `start` up to `stop` in blocks of `size`, of which the first sees keys from `first_key` on."""

    start: int
    stop: int
    size: int
    first_key: int

    @property
    def reach(self) -> int:
        """Keys per block: back by the window of the last query."""
        return self.start - self.first_key + self.size


class Running:
    """Attention of one text as it is merged: out (T, H, D) and logsumexp (T, H), empty until something is added."""

    def __init__(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> None:
        self.out = torch.zeros(shape, dtype=dtype, device=device)
        self.lse = torch.full(shape[:2], float("-inf"), dtype=dtype, device=device)

    def add(self, rows: Tensor, out_nHD: Tensor, lse_nH: Tensor) -> None:
        """Merge attention over one more set of keys into some rows."""
        before_nH, mixed_nHD = self.lse.index_select(0, rows), self.out.index_select(0, rows)
        mixed_nHD.lerp_(out_nHD.to(mixed_nHD.dtype), torch.sigmoid(lse_nH - before_nH)[..., None])
        self.out.index_copy_(0, rows, mixed_nHD)
        self.lse.index_copy_(0, rows, torch.logaddexp(lse_nH, before_nH))


def _same_group(
    tensors: list[Tensor], membership_T: Tensor, scale: float, total: Running, stage: Stage
) -> Running | None:
    """Add what inclusion-exclusion adds to `total`; return what it takes away, None for k = 1."""
    removed: Running | None = None
    for _, sign, rows in inclusion_exclusion(membership_T):
        with stage("sort"):
            q_1HnD, k_1GnD, v_1GnD = (x.index_select(0, rows).transpose(0, 1)[None] for x in tensors)
        with stage("same_group"):
            out_1HnD, lse_1Hn = causal_flash(q_1HnD, k_1GnD, v_1GnD, scale)
        with stage("merge"):
            target = total
            if sign < 0:
                target = removed = removed or Running(total.out.shape, total.out.dtype, total.out.device)
            target.add(rows, out_1HnD[0].transpose(0, 1), lse_1Hn[0].t())
    return removed


def has_local(membership: Tensor, window: int) -> bool:
    """Whether (T,) tokens have near pairs without a shared group; one without groups shares none even with itself."""
    return window > 0 or not bool(membership.all())


def has_far_sinks(length: int, rule: PairRule) -> bool:
    """Whether some query of a text of `length` tokens has a sink beyond its window."""
    return rule.num_sinks > 0 and rule.window + 1 < length


def local_pieces(length: int, rule: PairRule) -> list[LocalPiece]:
    """Pieces that cover all queries: behind every block lies a whole window, the last little longer than the first."""
    pieces, start = [], 0
    while start < length:
        stop = min(start + LOCAL_BLOCK, length)
        window = rule.near(stop - 1)
        most = min(start, rule.near(length - 1), window + window // PIECE_GROWTH + 1)
        while stop + LOCAL_BLOCK <= length and rule.near(stop + LOCAL_BLOCK - 1) <= most:
            if (stop + LOCAL_BLOCK - start) * (most + LOCAL_BLOCK) > MOST_PAIRS:
                break
            stop += LOCAL_BLOCK
        pieces.append(LocalPiece(start, stop, min(LOCAL_BLOCK, stop - start), max(0, start - rule.near(stop - 1))))
        start = stop
    return pieces


def local_blocks(
    tensors: list[Tensor], membership: Tensor, rule: PairRule, piece: LocalPiece
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Queries of one piece with the keys in their reach; query (T, H, D), key and value (T, G, D).

    Returns:
        query (N, H, b, D), key and value (N, G, t, D); near (N or 1, b, t) and shared (N, b, t) pairs, bool.
    """
    first, reach, blocks = piece.first_key, piece.reach, (-1, piece.size)
    own, in_reach = slice(piece.start, piece.stop), slice(first, piece.stop)
    query, key, value = tensors
    q_NHbD = query[own].unflatten(0, blocks).transpose(1, 2)
    k_NGtD, v_NGtD = (x[in_reach].unfold(0, reach, piece.size).transpose(2, 3) for x in (key, value))  # views
    groups_Nb, groups_Nt = membership[own].unflatten(0, blocks), membership[in_reach].unfold(0, reach, piece.size)
    place = torch.arange(reach, device=membership.device)
    distance_bt = place[piece.start - first :, None] - place[None, :]
    if rule.grows:
        position_Nb = torch.arange(piece.start, piece.stop, device=membership.device).unflatten(0, blocks)
        near_Nbt = (distance_bt >= 0) & (distance_bt <= rule.near(position_Nb)[..., None])
    else:
        near_Nbt = ((distance_bt >= 0) & (distance_bt <= rule.window))[None]
    return q_NHbD, k_NGtD, v_NGtD, near_Nbt, (groups_Nb[:, :, None] & groups_Nt[:, None, :]) != 0


def _cross_group_local(tensors: list[Tensor], membership: Tensor, rule: PairRule, scale: float, total: Running) -> None:
    """Overwrite `total` with the attention of one text to near tokens without a shared group; nothing is waited for."""
    for piece in local_pieces(membership.shape[0], rule):
        q_NHbD, k_NGtD, v_NGtD, near_Nbt, shared_Nbt = local_blocks(tensors, membership, rule, piece)
        out_NHbD, lse_NHb = masked_flash(q_NHbD, k_NGtD, v_NGtD, (near_Nbt & ~shared_Nbt)[:, None], scale)
        rows = slice(piece.start, piece.stop)
        total.out[rows] = out_NHbD.transpose(1, 2).flatten(0, 1)
        total.lse[rows] = lse_NHb.transpose(1, 2).flatten(0, 1)


def _cross_group_sinks(
    tensors: list[Tensor], membership_T: Tensor, rule: PairRule, scale: float, total: Running
) -> None:
    """Merge the sinks beyond the window into `total`; F stands for the queries that have some."""
    q_THD, k_TGD, v_TGD = tensors
    repeats = q_THD.shape[1] // k_TGD.shape[1]
    first = rule.window + 1  # queries before it have every sink in their window
    k_HSD, v_HSD = (x[: rule.num_sinks].repeat_interleave(repeats, dim=1).transpose(0, 1) for x in (k_TGD, v_TGD))
    kind = total.lse.dtype  # of 16 bits scores would be rounded
    scores_HFS = q_THD[first:].transpose(0, 1).to(kind) @ k_HSD.to(kind).transpose(-1, -2) * scale
    hidden_FS = ~sink_pairs(membership_T, rule, k_HSD.shape[1])[first:]
    scores_HFS = scores_HFS.masked_fill(hidden_FS, float("-inf"))
    lse_HF = torch.logsumexp(torch.cat([scores_HFS, total.lse[first:].t()[..., None]], dim=-1), dim=-1)
    finite_HF = lse_HF.masked_fill(lse_HF == float("-inf"), 0.0)
    weights_HFS = torch.exp(scores_HFS - finite_HF[..., None]).to(v_HSD.dtype)
    rest_FH1 = torch.exp(total.lse[first:] - finite_HF.t())[..., None]
    total.out[first:].mul_(rest_FH1).add_((weights_HFS @ v_HSD).transpose(0, 1))
    total.lse[first:] = lse_HF.t()


def sink_pairs(membership: Tensor, rule: PairRule, num_sinks: int) -> Tensor:
    """(T, S) bool: pairs that only the sinks keep, beyond the window and without a shared group."""
    position_T = torch.arange(membership.shape[0], device=membership.device)
    far_TS = position_T[:, None] - position_T[None, :num_sinks] > rule.near(position_T)[:, None]
    return far_TS & ((membership[:, None] & membership[None, :num_sinks]) == 0)


def _subtract(total: Running, removed: Running) -> None:
    """Take away what was counted too often; all of `removed` is contained in `total`, so the rest stays positive."""
    share_TH = torch.exp(removed.lse - total.lse.masked_fill(total.lse == float("-inf"), 0.0))
    rest_TH = torch.log1p(-share_TH)
    weight_TH1 = torch.exp(-rest_TH)[..., None]
    total.out = total.out * weight_TH1 - removed.out * (share_TH[..., None] * weight_TH1)
    total.lse = total.lse + rest_TH


def decomposed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scale: float,
    *,
    stage: Stage = unmeasured,
) -> tuple[Tensor, Tensor]:
    """Exact Focus attention, any k, for as many queries as keys, without padding or softcap, on any device."""
    length = query.shape[2]
    # local blocks reach back a whole window: a longer one only costs memory
    rule = replace(rule, window=min(rule.window, length - 1))
    dtype = torch.promote_types(query.dtype, torch.float32)
    outs, lses = [], []
    for b in range(query.shape[0]):
        by_token = [x[b].transpose(0, 1) for x in (query, key, value)]
        total = Running(by_token[0].shape, dtype, query.device)
        small_T = narrow(membership[b])
        if has_local(membership[b], rule.window):
            with stage("local"):
                _cross_group_local(by_token, small_T, rule, scale, total)
        if has_far_sinks(length, rule):
            with stage("sinks"):
                _cross_group_sinks(by_token, small_T, rule, scale, total)
        removed = _same_group(by_token, membership[b], scale, total, stage)
        if removed is not None:
            with stage("merge"):
                _subtract(total, removed)
        outs.append(total.out.to(query.dtype))
        lses.append(total.lse)
    return torch.stack(outs).transpose(1, 2), torch.stack(lses).transpose(1, 2)


GROUPED = "grouped attention"  # name of the Triton kernels in warnings
LARGEST_WINDOW = 4096  # tokens: their far keys begin where one window of keys has been looked through


def grouped_fits(query: Tensor, key: Tensor, value: Tensor, window: int, scoring: Scoring) -> bool:
    """Whether the Triton kernels take such a call, of as many queries as keys, without padding and gradients."""
    reaches = window <= LARGEST_WINDOW or window >= key.shape[2] - 1
    return reaches and scoring.scale > 0 and attention_fits(GROUPED, query, key, value)


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
    stage: Stage = unmeasured,
) -> tuple[Tensor, Tensor]:
    """Exact Focus attention by the Triton kernels where they take the call, else by `decomposed_attention`."""
    if grouped_fits(query, key, value, rule.near(key.shape[2] - 1), scoring):
        known = membership_extent(membership) if extent is None else extent
        grouped, pairwise = triton_kernels()

        def run() -> tuple[Tensor, Tensor]:
            if pairwise.pairwise_pays(query, known.num_groups, known.top_k):
                lse, groups = query.new_empty(query.shape[:3], dtype=torch.float32), known.num_groups
                tensors = (query, key, value, membership.contiguous()[None])
                out_BTHD = pairwise.pairwise_attention(*tensors, rule, scoring, num_groups=groups, stage=stage, lse=lse)
                return out_BTHD.transpose(1, 2), lse
            return grouped.grouped_attention(query, key, value, membership, rule, scoring, extent=known, stage=stage)

        result = tried(GROUPED, query, run)
        if result is not None:
            return result
    if scoring.softcap is not None:
        raise InputError(
            "backend 'decomposed' was given a softcap, which the flash kernels here do not have",
            expected="no softcap, or Triton and tensors in half precision",
            fix='use backend="auto"',
        )
    return decomposed_attention(query, key, value, membership, rule, scoring.scale, stage=stage)
