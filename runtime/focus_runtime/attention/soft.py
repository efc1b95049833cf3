"""Soft gates for training routers: differentiable in the group probabilities. All T^2 pairs, on any device.

`gated_attention` walks blocks of query rows and keeps no score for the backward pass, which computes them again, so
that memory grows with T and a step costs about what the model's own attention costs.

Shape suffixes: B batch, H query heads (Hq), G key-value heads (Hkv), r = H / G query heads of one key head, T tokens,
D head size, K groups; b rows (queries) of a block, n keys up to the block's end, m = r * b.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from focus_runtime.attention.reference import Scoring
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.router import top_k_membership

AFFINITY_FLOOR = 1e-6
LARGEST_EXPONENT = 30.0  # reached by dropped pairs only, where the gradient needs a finite weight
CPU_BLOCK = 2**21  # scores of a block of rows that the cache of a CPU can hold
BLOCK = 2**26  # elsewhere: large enough to keep a GPU busy
FEWEST_ROWS = 64  # below which the matrix products lose their speed


def gated_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    probabilities: Tensor,
    rule: PairRule,
    scoring: Scoring,
    *,
    gate: str,
    steepness: float = 8.0,
    hard_top_k: int | None = None,
    everywhere: Tensor | None = None,
) -> Tensor:
    """Causal attention whose far pairs are weakened by how little their groups agree.

    Differentiable once. Scores are computed in the dtype of the probabilities, matrix products in the query's.

    Args:
        probabilities: (B, T, K), rows sum to 1.
        rule: pairs within the window or with a sink are never weakened.
        scoring: scale and softcap; scores are capped before they are gated.
        gate: "log" multiplies the attention weight by the affinity g_i . g_j (log added to the logit);
            "paper" multiplies the logit by sigmoid(steepness * g_i . g_j) (equation 2).
        hard_top_k: with the log gate, use the hard top-k mask in the forward pass and the affinity's gradient in
            the backward pass (straight-through), so that training sees the mask inference uses.
        everywhere: (B, T) bool, tokens that belong to all groups: no pair with one of them is weakened.

    Returns:
        (B, H, T, D), a transposed view of (B, T, H, D).
    """
    membership = None  # of the hard mask
    if gate == "log" and hard_top_k is not None:
        membership = top_k_membership(probabilities.detach(), hard_top_k)

    def weights(scores_BGrbn: Tensor, probabilities_BnK: Tensor, rows: slice) -> Tensor:
        """Of a block of rows, from its scores and the probabilities up to its end."""
        far_bn = _far(rows, rule, everywhere, probabilities.device)
        block = (rows.stop - rows.start, rows.stop)
        later_bn = torch.full(block, float("-inf"), dtype=scores_BGrbn.dtype, device=far_bn.device).triu(rows.start + 1)
        agreement_Bbn = probabilities_BnK[:, rows] @ probabilities_BnK.transpose(1, 2)
        affinity_Bbn = agreement_Bbn.clamp(AFFINITY_FLOOR, 1.0)
        if gate == "paper":
            factor_Bbn = torch.where(far_bn, torch.sigmoid(steepness * affinity_Bbn), 1.0)
            return torch.softmax(torch.addcmul(later_bn, scores_BGrbn, factor_Bbn[:, None, None]), dim=-1)
        if membership is None:
            term_Bbn = torch.where(far_bn, torch.log(affinity_Bbn), 0.0) + later_bn
            return torch.softmax(scores_BGrbn + term_Bbn[:, None, None], dim=-1)
        shared_Bbn = (membership[:, rows, None] & membership[:, None, : rows.stop]) != 0
        hidden_Bbn = (far_bn & ~shared_Bbn) | (later_bn < 0)
        factor_Bbn = torch.where(far_bn & (later_bn == 0), affinity_Bbn, 1.0)
        return _hard_weights(scores_BGrbn, hidden_Bbn[:, None, None], factor_Bbn[:, None, None])

    return _InBlocks.apply(query, key, value, probabilities, scoring, weights)


def _far(rows: slice, rule: PairRule, everywhere_BT: Tensor | None, device: torch.device) -> Tensor:
    """(b, n) or (B, b, n) True for pairs that are gated: beyond the window, and with no sink."""
    place_n = torch.arange(rows.stop, device=device)
    pairs_bn = (place_n < rule.nearest_far(place_n[rows])[:, None]) & (place_n >= rule.num_sinks)
    if everywhere_BT is None:
        return pairs_bn
    return pairs_bn & ~(everywhere_BT[:, rows, None] | everywhere_BT[:, None, : rows.stop])


def _hard_weights(scores_BGrbn: Tensor, hidden_B11bn: Tensor, factor_B11bn: Tensor) -> Tensor:
    """Softmax over the pairs that are not hidden; a factor of every weight gets a gradient and has no effect."""
    logits_BGrbn = scores_BGrbn.masked_fill(hidden_B11bn, float("-inf"))
    weights_BGrbn = torch.softmax(logits_BGrbn, dim=-1)
    if not factor_B11bn.requires_grad:
        return weights_BGrbn
    every_BGrbn = scores_BGrbn.detach() - logits_BGrbn.detach().amax(dim=-1, keepdim=True)
    # The largest weight is 1 over the sum, which scales dropped pairs to the sum of the allowed ones.
    every_BGrbn.clamp_(max=LARGEST_EXPONENT).exp_().mul_(weights_BGrbn.detach().amax(dim=-1, keepdim=True))
    return _StraightThrough.apply(weights_BGrbn, every_BGrbn, factor_B11bn)


class _StraightThrough(torch.autograd.Function):
    """Weights as they are, with the gradient of a factor of `every` weight, dropped pairs' too."""

    @staticmethod
    def forward(ctx: Any, weights_BGrbn: Tensor, every_BGrbn: Tensor, factor_B11bn: Tensor) -> Tensor:
        ctx.save_for_backward(weights_BGrbn, every_BGrbn)
        return weights_BGrbn.view_as(weights_BGrbn)

    @staticmethod
    def backward(ctx: Any, grad_BGrbn: Tensor) -> tuple[Tensor, None, Tensor]:
        weights_BGrbn, every_BGrbn = ctx.saved_tensors
        delta_BGrb1 = (weights_BGrbn * grad_BGrbn).sum(dim=-1, keepdim=True)
        return grad_BGrbn, None, ((grad_BGrbn - delta_BGrb1) * every_BGrbn).sum(dim=(1, 2), keepdim=True)


class _InBlocks(torch.autograd.Function):
    """Attention in blocks of rows, computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        probabilities: Tensor,
        scoring: Scoring,
        weights: Callable[[Tensor, Tensor, slice], Tensor],
    ) -> Tensor:
        inputs = (query, key, value, probabilities)
        ctx.save_for_backward(*inputs)
        ctx.attend = functools.partial(_attend_rows, scoring=scoring, weights=weights)
        batch, heads, length, size = query.shape
        out_BTHD = torch.empty(batch, length, heads, size, dtype=value.dtype, device=value.device)
        with torch.autocast(query.device.type, enabled=False):
            for rows in _blocks(query):
                out_BTHD[:, rows] = ctx.attend(*_seen_by(rows, *inputs), rows).transpose(1, 2)
        return out_BTHD.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BHTD: Tensor) -> tuple[Tensor | None, ...]:
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[:4]
        totals = [torch.zeros(x.shape, dtype=inputs[3].dtype, device=x.device) for x in inputs]
        with torch.autocast(grad_BHTD.device.type, enabled=False):
            for rows in _blocks(inputs[0]):
                leaves = [
                    x.detach().requires_grad_(need) for x, need in zip(_seen_by(rows, *inputs), needed, strict=True)
                ]
                with torch.enable_grad():
                    out_BHbD = ctx.attend(*leaves, rows)
                wanted = [leaf for leaf in leaves if leaf.requires_grad]
                found = iter(torch.autograd.grad(out_BHbD, wanted, grad_BHTD[:, :, rows]))
                for total, need in zip(_seen_by(rows, *totals), needed, strict=True):
                    if need:
                        total += next(found)
        grads = [total.to(x.dtype) if need else None for total, x, need in zip(totals, inputs, needed, strict=True)]
        return *grads, None, None


def _blocks(q_BHTD: Tensor) -> list[slice]:
    """Rows of queries that are computed together; a block sees the keys up to its own end."""
    batch, heads, length, _ = q_BHTD.shape
    budget = CPU_BLOCK if q_BHTD.device.type == "cpu" else BLOCK
    rows = max(FEWEST_ROWS, budget // max(1, batch * heads * length) // FEWEST_ROWS * FEWEST_ROWS)
    return [slice(start, min(start + rows, length)) for start in range(0, length, rows)]


def _seen_by(rows: slice, query: Tensor, key: Tensor, value: Tensor, probabilities: Tensor) -> tuple[Tensor, ...]:
    """The block's own queries, and the rest up to its end."""
    until = slice(rows.stop)
    return query[:, :, rows], key[:, :, until], value[:, :, until], probabilities[:, until]


def _attend_rows(
    q_BHbD: Tensor,
    k_BGnD: Tensor,
    v_BGnD: Tensor,
    probabilities_BnK: Tensor,
    rows: slice,
    *,
    scoring: Scoring,
    weights: Callable[[Tensor, Tensor, slice], Tensor],
) -> Tensor:
    """(B, H, b, D) attention of a block."""
    block = (-1, rows.stop - rows.start)
    q_BGmD = q_BHbD.unflatten(1, (k_BGnD.shape[1], -1)).flatten(2, 3)
    scores_BGmn = (q_BGmD @ k_BGnD.transpose(2, 3)).to(probabilities_BnK.dtype).mul_(scoring.scale)
    weights_BGrbn = weights(scoring.capped(scores_BGmn).unflatten(2, block), probabilities_BnK, rows)
    out_BGmD = weights_BGrbn.to(v_BGnD.dtype).flatten(2, 3) @ v_BGnD
    return out_BGmD.unflatten(2, block).flatten(1, 2)
