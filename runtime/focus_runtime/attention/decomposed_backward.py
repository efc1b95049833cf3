"""Backward through the decomposition, for training under the hard mask at lengths where dense attention does not fit.

Attention over several key sets merged by logsumexp is one softmax over their union. Its gradient is the sum over the
sets of each flash backward, given the *merged* output and logsumexp: then exp(score - lse) is the weight the forward
pass used. (Autograd through the merge would treat each set's logsumexp as a constant, and be wrong.) Sets that
inclusion-exclusion takes away count with a minus sign here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention.decomposed import (
    causal_sets,
    decomposed_attention,
    has_far_sinks,
    has_local,
    local_blocks,
    local_pieces,
    sink_pairs,
)
from focus_runtime.attention.flash import flash_backward
from focus_runtime.attention.fused import fused_attention, fused_available, fused_fits
from focus_runtime.mask.rule import narrow
from focus_runtime.routing.router import top_k_membership


@dataclass(slots=True)
class _Text:
    """One text by token: (T, H, D) each, logsumexp (T, H); gradients are added up in the accumulators' dtype."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    grad: Tensor
    lse: Tensor
    grad_query: Tensor
    grad_key: Tensor
    grad_value: Tensor

    @property
    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Those of query, key and value."""
        return self.grad_query, self.grad_key, self.grad_value

    @property
    def shares(self) -> int:
        """Query heads per key head."""
        return self.query.shape[1] // self.key.shape[1]


def _same_group(text: _Text, membership: Tensor, scale: float, gates: Tensor | None) -> None:
    """Causal sets; with `gates` (T, K) also the sums of the score gradients per token and group.

    Two more head dimensions, (1, 0) in queries and (0, 1) in keys, change no score; the gradient of a key in the first
    is the sum of its column of score gradients, that of a query in the second the sum of its row.
    """
    dim = text.query.shape[2]
    for part in causal_sets(membership):
        tensors = [x.index_select(0, part.rows) for x in (text.grad, text.query, text.key, text.value, text.out)]
        single = gates is not None and part.groups.bit_count() == 1
        if single:
            tensors = [torch.nn.functional.pad(x, (0, 2)) for x in tensors]
            tensors[1][..., dim] = 1.0
            tensors[2][..., dim + 1] = 1.0
        lse = text.lse.index_select(0, part.rows).t()[None]
        g, q, k, v, out = (x.transpose(0, 1)[None] for x in tensors)
        found = flash_backward(g, q, k, v, out, lse, scale)
        grads = [x[0].transpose(0, 1) for x in found]
        if single and gates is not None:
            sums = (grads[0][..., dim + 1].sum(1) + grads[1][..., dim].sum(1)) / scale
            gates[:, part.groups.bit_length() - 1].index_add_(0, part.rows, sums.to(gates.dtype))
        for target, grad in zip(text.gradients, grads, strict=True):
            target.index_add_(0, part.rows, grad[..., :dim].to(target.dtype), alpha=part.sign)


def _local(text: _Text, membership: Tensor, window: int, scale: float) -> None:
    for piece in local_pieces(text.query.shape[0], window):
        q, k, v, near, shared = local_blocks((text.query, text.key, text.value), membership, window, piece)
        out, grad, lse = (_blocks_like(x, q, piece) for x in (text.out, text.grad, text.lse[..., None]))
        found = flash_backward(grad, q, k, v, out, lse[..., 0], scale, (near & ~shared)[:, None])
        start, stop, blocks = piece
        text.grad_query[start:stop] += found[0].transpose(1, 2).flatten(0, 1)
        rows = _key_rows(piece, window)
        for target, grad_k in zip(text.gradients[1:], found[1:], strict=True):
            target.index_add_(0, rows.flatten(), grad_k.transpose(1, 2).flatten(0, 1).to(target.dtype))
        assert rows.shape[0] == blocks


def _blocks_like(x: Tensor, blocks: Tensor, piece: tuple[int, int, int]) -> Tensor:
    """(T, H, D) -> (N, H, b, D) for the queries of one piece."""
    return x[piece[0] : piece[1]].unflatten(0, (blocks.shape[0], blocks.shape[2])).transpose(1, 2)


def _key_rows(piece: tuple[int, int, int], window: int) -> Tensor:
    """(N, reach) rows of the keys of each block of one piece."""
    start, stop, blocks = piece
    size = (stop - start) // blocks
    first = max(0, start - window)
    return first + size * torch.arange(blocks)[:, None] + torch.arange(start - first + size)[None, :]


def _weights_and_score_gradients(
    text: _Text, keys: Tensor, values: Tensor, rows: slice, scale: float, allowed: Tensor
) -> tuple[Tensor, Tensor]:
    """Dense weights and score gradients (H, n, m) of some rows against a few keys (m, Hkv, D)."""
    q, grad, out = (x[rows].transpose(0, 1) for x in (text.query, text.grad, text.out))
    k, v = (x.repeat_interleave(text.shares, dim=1).transpose(0, 1) for x in (keys, values))
    dtype = text.lse.dtype
    scores = (q @ k.transpose(1, 2)).to(dtype) * scale
    weights = torch.exp(scores - text.lse[rows].t()[..., None]).masked_fill(~allowed, 0.0)
    through_value = (grad @ v.transpose(1, 2)).to(dtype)
    return weights, weights * (through_value - (grad * out).sum(-1, dtype=dtype)[..., None])


def _sinks(text: _Text, membership: Tensor, window: int, num_sinks: int, scale: float) -> None:
    rows = slice(window + 1, None)
    keys, values = text.key[:num_sinks], text.value[:num_sinks]
    allowed = sink_pairs(membership, window, keys.shape[0])[rows]
    weights, scores = _weights_and_score_gradients(text, keys, values, rows, scale, allowed)
    dtype = weights.dtype
    q, grad = (x[rows].transpose(0, 1).to(dtype) for x in (text.query, text.grad))
    k = keys.repeat_interleave(text.shares, dim=1).transpose(0, 1).to(dtype)
    text.grad_query[rows] += (scores @ k).transpose(0, 1) * scale
    for target, per_head in (
        (text.grad_key, scores.transpose(1, 2) @ q * scale),
        (text.grad_value, weights.transpose(1, 2) @ grad),
    ):
        target[:num_sinks] += per_head.unflatten(0, (-1, text.shares)).sum(1).transpose(0, 1)


def _ungate(text: _Text, membership: Tensor, window: int, num_sinks: int, scale: float, gates: Tensor) -> None:
    """Take near pairs and pairs with a sink out of the gates' sums: the mask keeps them whatever their groups."""
    groups = gates.shape[1]
    member = ((membership[:, None] >> torch.arange(groups)) & 1).to(gates.dtype)
    length = membership.shape[0]
    for start in range(0, length, 64):
        rows = slice(start, min(start + 64, length))
        first = max(0, start - window)
        position, column = torch.arange(length)[rows, None], torch.arange(first, rows.stop)[None, :]
        near = (column <= position) & (position - column <= window)
        _take(text, rows, slice(first, rows.stop), near, member, scale, gates)
    rows = slice(window + 1, None)
    if has_far_sinks(length, window, num_sinks):
        far = torch.arange(length)[rows, None] - torch.arange(min(num_sinks, length))[None, :] > window
        _take(text, rows, slice(0, far.shape[1]), far, member, scale, gates)


def _take(text: _Text, rows: slice, keys: slice, pairs: Tensor, member: Tensor, scale: float, gates: Tensor) -> None:
    shared = pairs & ((member[rows] @ member[keys].t()) > 0)
    scores = _weights_and_score_gradients(text, text.key[keys], text.value[keys], rows, scale, shared)[1].sum(0)
    scores = scores.to(gates.dtype)
    gates[rows] -= (scores @ member[keys]) * member[rows]
    gates[keys] -= (scores.t() @ member[rows]) * member[keys]


def _gradients(
    inputs: tuple[Tensor, ...],
    grad: Tensor,
    membership: Tensor,
    settings: tuple[int, int, float],
    num_groups: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of query, key, value and, with `num_groups`, of the gates (B, T, K)."""
    query, key, value, out, lse = inputs
    window, num_sinks, scale = settings
    window = min(window, query.shape[2] - 1)
    found: list[list[Tensor]] = []
    for b in range(query.shape[0]):
        q, k, v, o, g = (x[b].transpose(0, 1) for x in (query, key, value, out, grad))
        zeros = [torch.zeros(x.shape, dtype=lse.dtype) for x in (q, k, v)]
        text = _Text(q, k, v, o, g, lse[b].t(), *zeros)
        gates = torch.zeros(q.shape[0], num_groups, dtype=lse.dtype) if num_groups else None
        small = narrow(membership[b])
        _same_group(text, membership[b], scale, gates)
        if has_local(small, window):
            _local(text, small, window, scale)
        if has_far_sinks(q.shape[0], window, num_sinks):
            _sinks(text, small, window, num_sinks, scale)
        if gates is not None:
            _ungate(text, membership[b], window, num_sinks, scale, gates)
        found.append([x.transpose(0, 1) for x in text.gradients] + ([] if gates is None else [gates]))
    stacked = [torch.stack(parts) for parts in zip(*found, strict=True)]
    gates = stacked[3] if num_groups else None
    return stacked[0].to(query.dtype), stacked[1].to(key.dtype), stacked[2].to(value.dtype), gates


def _forward(
    query: Tensor, key: Tensor, value: Tensor, membership: Tensor, window: int, num_sinks: int, scale: float
) -> tuple[Tensor, Tensor]:
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "scale": scale}
    if fused_fits(query, key, value) and fused_available():
        return fused_attention(query, key, value, membership, **settings)
    return decomposed_attention(query, key, value, membership, **settings)


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
        window: int,
        num_sinks: int,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        out, lse = _forward(query, key, value, membership, window, num_sinks, scale)
        ctx.save_for_backward(query, key, value, out, lse, membership)
        ctx.settings = (window, num_sinks, scale)
        ctx.groups = None if probabilities is None else (probabilities.shape[-1], probabilities.dtype)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, membership = ctx.saved_tensors
        num_groups = 0 if ctx.groups is None else ctx.groups[0]
        q, k, v, gates = _gradients(tuple(inputs), grads[0], membership, ctx.settings, num_groups)
        if gates is not None:
            gates = gates.to(ctx.groups[1])
        return q, k, v, None, gates, None, None, None


def differentiable_attention(
    query: Tensor, key: Tensor, value: Tensor, membership: Tensor, *, window: int, num_sinks: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Focus attention with exact gradients for query, key and value in memory linear in T; CPU, Tq = Tk, no padding.

    The logsumexp that comes with it carries no gradient.
    """
    return _Differentiable.apply(query, key, value, membership, None, window, num_sinks, scale)


def straight_through_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    probabilities: Tensor,
    *,
    top_k: int,
    window: int,
    num_sinks: int,
    scale: float,
) -> Tensor:
    """Attention under the hard top-k mask, with a gradient for the routers, in memory linear in T.

    A pair kept only because its tokens share groups is weighed by 1 in the forward pass. Its gradient goes to the
    probabilities of the shared groups, of the query and of the key, as if the weight were
    1 + sum over shared g of (p_i[g] p_j[g] - 1) at p = 1 (straight-through). Near pairs, sinks and dropped pairs
    give the routers no gradient: what a token in another group would have contributed stays unknown, and only
    `gated_attention(hard_top_k=...)`, which computes all T^2 pairs, can say.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D), on the CPU.
        probabilities: (B, T, K).

    Returns:
        (B, Hq, T, D).
    """
    membership = top_k_membership(probabilities.detach(), top_k)
    return _Differentiable.apply(query, key, value, membership, probabilities, window, num_sinks, scale)[0]
