"""Backward through the decomposition, for training under the hard mask at lengths where dense attention does not fit.

Attention over several key sets merged by logsumexp is one softmax over their union. Its gradient is the sum over the
sets of each flash backward, given the *merged* output and logsumexp: then exp(score - lse) is the weight the forward
pass used. (Autograd through the merge would treat each set's logsumexp as a constant, and be wrong.) Sets that
inclusion-exclusion takes away count with a minus sign here too.

Shape suffixes: T tokens, H query heads (Hq), G key-value heads (Hkv), D head size, K groups; N blocks of b queries with
t keys in reach, n tokens of one set of groups, m keys of a dense part, S sinks. One text at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention.decomposed import (
    gpu_decomposition,
    has_far_sinks,
    has_local,
    inclusion_exclusion,
    local_blocks,
    local_pieces,
    sink_pairs,
)
from focus_runtime.attention.flash import flash_backward
from focus_runtime.attention.fused import fused_attention, fused_runs
from focus_runtime.attention.reference import Scoring
from focus_runtime.mask.allowed_pairs import group_bits, narrow
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.router import top_k_membership


@dataclass(slots=True)
class _Text:
    """One text by token, with the gradients added up so far in the accumulators' dtype."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    grad: Tensor
    lse: Tensor
    scale: float
    gradients: list[Tensor]  # of query, key and value

    @property
    def shares(self) -> int:
        """Query heads per key head."""
        return self.query.shape[1] // self.key.shape[1]


def _same_group(text: _Text, membership_T: Tensor, gates_TK: Tensor | None) -> None:
    """Causal sets; with gates also the sums of the score gradients per token and group.

    Two more head dimensions, (1, 0) in queries and (0, 1) in keys, change no score; the gradient of a key in the first
    is the sum of its column of score gradients, that of a query in the second the sum of its row.
    """
    dim = text.query.shape[2]
    for groups, sign, rows in inclusion_exclusion(membership_T):
        by_token = [x.index_select(0, rows) for x in (text.grad, text.query, text.key, text.value, text.out)]
        single = gates_TK is not None and groups.bit_count() == 1
        if single:
            by_token = [torch.nn.functional.pad(x, (0, 2)) for x in by_token]
            by_token[1][..., dim] = 1.0
            by_token[2][..., dim + 1] = 1.0
        lse_1Hn = text.lse.index_select(0, rows).t()[None]
        grad_1HnD, q_1HnD, k_1GnD, v_1GnD, out_1HnD = (x.transpose(0, 1)[None] for x in by_token)
        by_head = flash_backward(grad_1HnD, q_1HnD, k_1GnD, v_1GnD, out_1HnD, lse_1Hn, text.scale)
        grads = [x[0].transpose(0, 1) for x in by_head]
        if single and gates_TK is not None:
            sums_n = (grads[0][..., dim + 1].sum(1) + grads[1][..., dim].sum(1)) / text.scale
            gates_TK[:, groups.bit_length() - 1].index_add_(0, rows, sums_n.to(gates_TK.dtype))
        for target, grad in zip(text.gradients, grads, strict=True):
            target.index_add_(0, rows, grad[..., :dim].to(target.dtype), alpha=sign)


def _local(text: _Text, membership_T: Tensor, rule: PairRule) -> None:
    for piece in local_pieces(text.query.shape[0], rule):
        q_NHbD, k_NGtD, v_NGtD, near_Nbt, shared_Nbt = local_blocks(
            [text.query, text.key, text.value], membership_T, rule, piece
        )
        rows = slice(piece.start, piece.stop)
        out_NHbD, grad_NHbD, lse_NHb = (
            x[rows].unflatten(0, (-1, piece.size)).transpose(1, 2) for x in (text.out, text.grad, text.lse)
        )
        allowed_N1bt = (near_Nbt & ~shared_Nbt)[:, None]
        grad_q_NHbD, *grads_NGtD = flash_backward(
            grad_NHbD, q_NHbD, k_NGtD, v_NGtD, out_NHbD, lse_NHb, text.scale, allowed_N1bt
        )
        text.gradients[0][rows] += grad_q_NHbD.transpose(1, 2).flatten(0, 1)
        place_T = torch.arange(piece.stop, device=membership_T.device)
        rows_Nt = place_T[piece.first_key :].unfold(0, piece.reach, piece.size)
        for target, grad_NGtD in zip(text.gradients[1:], grads_NGtD, strict=True):
            target.index_add_(0, rows_Nt.reshape(-1), grad_NGtD.transpose(1, 2).flatten(0, 1).to(target.dtype))


def _weights_and_score_gradients(
    text: _Text, k_mGD: Tensor, v_mGD: Tensor, rows: slice, allowed_nm: Tensor
) -> tuple[Tensor, Tensor]:
    """Dense weights and score gradients (H, n, m) of some rows against a few keys."""
    q_HnD, grad_HnD, out_HnD = (x[rows].transpose(0, 1) for x in (text.query, text.grad, text.out))
    k_HmD, v_HmD = (x.repeat_interleave(text.shares, dim=1).transpose(0, 1) for x in (k_mGD, v_mGD))
    dtype = text.lse.dtype
    scores_Hnm = (q_HnD @ k_HmD.transpose(1, 2)).to(dtype) * text.scale
    weights_Hnm = torch.exp(scores_Hnm - text.lse[rows].t()[..., None]).masked_fill(~allowed_nm, 0.0)
    through_value_Hnm = (grad_HnD @ v_HmD.transpose(1, 2)).to(dtype)
    return weights_Hnm, weights_Hnm * (through_value_Hnm - (grad_HnD * out_HnD).sum(-1, dtype=dtype)[..., None])


def _sinks(text: _Text, membership_T: Tensor, rule: PairRule) -> None:
    rows = slice(rule.window + 1, None)
    k_SGD, v_SGD = text.key[: rule.num_sinks], text.value[: rule.num_sinks]
    allowed_nS = sink_pairs(membership_T, rule, k_SGD.shape[0])[rows]
    weights_HnS, scores_HnS = _weights_and_score_gradients(text, k_SGD, v_SGD, rows, allowed_nS)
    dtype = weights_HnS.dtype
    q_HnD, grad_HnD = (x[rows].transpose(0, 1).to(dtype) for x in (text.query, text.grad))
    k_HSD = k_SGD.repeat_interleave(text.shares, dim=1).transpose(0, 1).to(dtype)
    text.gradients[0][rows] += (scores_HnS @ k_HSD).transpose(0, 1) * text.scale
    grads_HSD = (scores_HnS.transpose(1, 2) @ q_HnD * text.scale, weights_HnS.transpose(1, 2) @ grad_HnD)
    for target, grad_HSD in zip(text.gradients[1:], grads_HSD, strict=True):
        target[: rule.num_sinks] += grad_HSD.unflatten(0, (-1, text.shares)).sum(1).transpose(0, 1)


def _ungate(text: _Text, membership_T: Tensor, rule: PairRule, gates_TK: Tensor) -> None:
    """Take near pairs and pairs with a sink out of the gates' sums: the mask keeps them whatever their groups."""
    length, device = membership_T.shape[0], membership_T.device
    member_TK = group_bits(membership_T, gates_TK.shape[1]).to(gates_TK.dtype)
    place_T = torch.arange(length, device=device)
    for start in range(0, length, 64):
        rows = slice(start, min(start + 64, length))
        first = max(0, rule.nearest_far(start))
        position, column = place_T[rows, None], place_T[None, first : rows.stop]
        near_nm = (column <= position) & (position - column <= rule.near(position))
        _take(text, rows, slice(first, rows.stop), near_nm, member_TK, gates_TK)
    rows = slice(rule.window + 1, None)
    if has_far_sinks(length, rule):
        far_nm = place_T[rows, None] - place_T[None, : rule.num_sinks] > rule.near(place_T[rows, None])
        _take(text, rows, slice(0, far_nm.shape[1]), far_nm, member_TK, gates_TK)


def _take(text: _Text, rows: slice, keys: slice, pairs_nm: Tensor, member_TK: Tensor, gates_TK: Tensor) -> None:
    shared_nm = pairs_nm & ((member_TK[rows] @ member_TK[keys].t()) > 0)
    scores_nm = _weights_and_score_gradients(text, text.key[keys], text.value[keys], rows, shared_nm)[1].sum(0)
    scores_nm = scores_nm.to(gates_TK.dtype)
    gates_TK[rows] -= (scores_nm @ member_TK[keys]) * member_TK[rows]
    gates_TK[keys] -= (scores_nm.t() @ member_TK[rows]) * member_TK[keys]


def _gradients(
    inputs: tuple[Tensor, ...],
    grad_BHTD: Tensor,
    membership_BT: Tensor,
    rule: PairRule,
    scale: float,
    num_groups: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of query, key, value and, with `num_groups`, of the gates (B, T, K)."""
    query, key, value, out, lse = inputs
    rule = replace(rule, window=min(rule.window, query.shape[2] - 1))
    by_text: list[list[Tensor]] = []
    for b in range(query.shape[0]):
        q_THD, k_TGD, v_TGD, out_THD, grad_THD = (x[b].transpose(0, 1) for x in (query, key, value, out, grad_BHTD))
        zeros = [torch.zeros(x.shape, dtype=lse.dtype, device=x.device) for x in (q_THD, k_TGD, v_TGD)]
        text = _Text(q_THD, k_TGD, v_TGD, out_THD, grad_THD, lse[b].t(), scale, zeros)
        gates_TK = torch.zeros(q_THD.shape[0], num_groups, dtype=lse.dtype, device=lse.device) if num_groups else None
        small_T = narrow(membership_BT[b])
        _same_group(text, membership_BT[b], gates_TK)
        if has_local(small_T, rule.window):
            _local(text, small_T, rule)
        if has_far_sinks(q_THD.shape[0], rule):
            _sinks(text, small_T, rule)
        if gates_TK is not None:
            _ungate(text, membership_BT[b], rule, gates_TK)
        by_text.append([x.transpose(0, 1) for x in text.gradients] + ([] if gates_TK is None else [gates_TK]))
    stacked = [torch.stack(parts) for parts in zip(*by_text, strict=True)]
    gates_BTK = stacked[3] if num_groups else None
    return stacked[0].to(query.dtype), stacked[1].to(key.dtype), stacked[2].to(value.dtype), gates_BTK


class _Differentiable(torch.autograd.Function):
    """Hard-masked attention; also differentiable in the group probabilities when they are given."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        membership: Tensor,
        probabilities: Tensor | None,
        rule: PairRule,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        inputs = (query, key, value, membership, rule)
        if fused_runs(query, key, value):
            out, lse = fused_attention(*inputs, Scoring(scale))
        else:
            out, lse = gpu_decomposition(*inputs, Scoring(scale))
        ctx.save_for_backward(query, key, value, out, lse, membership)
        ctx.rule, ctx.scale = rule, scale
        ctx.groups = None if probabilities is None else (probabilities.shape[-1], probabilities.dtype)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, membership = ctx.saved_tensors
        num_groups = 0 if ctx.groups is None else ctx.groups[0]
        grad_q, grad_k, grad_v, gates = _gradients(tuple(inputs), grads[0], membership, ctx.rule, ctx.scale, num_groups)
        if gates is not None:
            gates = gates.to(ctx.groups[1])
        return grad_q, grad_k, grad_v, None, gates, None, None


def differentiable_attention(
    query: Tensor, key: Tensor, value: Tensor, membership: Tensor, rule: PairRule, scale: float
) -> tuple[Tensor, Tensor]:
    """Focus attention with exact gradients for query, key and value in memory linear in T; no padding."""
    return _Differentiable.apply(query, key, value, membership, None, rule, scale)


def straight_through_attention(
    query: Tensor, key: Tensor, value: Tensor, probabilities: Tensor, rule: PairRule, scale: float, *, top_k: int
) -> Tensor:
    """Attention under the hard top-k mask, with a gradient for the routers, in memory linear in T.

    A pair kept only because its tokens share groups is weighed by 1 in the forward pass. Its gradient goes to the
    probabilities of the shared groups, of the query and of the key, as if the weight were
    1 + sum over shared g of (p_i[g] p_j[g] - 1) at p = 1 (straight-through). Near pairs, sinks and dropped pairs
    give the routers no gradient: what a token in another group would have contributed stays unknown, and only
    `gated_attention(hard_top_k=...)`, which computes all T^2 pairs, can say.
    """
    membership = top_k_membership(probabilities.detach(), top_k)
    return _Differentiable.apply(query, key, value, membership, probabilities, rule, scale)[0]
