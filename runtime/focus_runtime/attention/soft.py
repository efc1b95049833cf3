"""Soft gates for training routers: differentiable in the group probabilities. All T^2 pairs, on any device.

`gated_attention` walks blocks of query rows and keeps no score for the backward pass, which computes them again, so
that memory grows with T and a step costs about what the model's own attention costs.

Shape suffixes: B batch, H query heads (Hq), G key-value heads (Hkv), r = H / G query heads of one key head, T tokens,
D head size, K groups; b rows (queries) of a block, n keys up to the block's end, m = r * b.
"""

from __future__ import annotations

from dataclasses import dataclass
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

_softmax_backward = torch.ops.aten._softmax_backward_data


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings of one call; hard_top_k is None wherever no hard mask applies."""

    rule: PairRule
    scoring: Scoring
    gate: str
    steepness: float
    hard_top_k: int | None

    @property
    def additive(self) -> bool:
        """Whether the gate is a term of the logit and nothing else is done to the scaled product."""
        return self.gate == "log" and self.hard_top_k is None and self.scoring.softcap is None


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
    hard = hard_top_k if gate == "log" else None
    settings = _Settings(rule, scoring, gate, steepness, hard)
    membership = None if hard is None else top_k_membership(probabilities.detach(), hard)
    return _Gated.apply(query, key, value, probabilities, membership, everywhere, settings)


class _Gated(torch.autograd.Function):
    """Attention in blocks of rows, scored again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        probabilities: Tensor,
        membership: Tensor | None,
        everywhere: Tensor | None,
        settings: _Settings,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, probabilities, membership, everywhere)
        ctx.settings = settings
        batch, heads, length, size = query.shape
        out_BTHD = torch.empty(batch, length, heads, size, dtype=value.dtype, device=value.device)
        with torch.autocast(query.device.type, enabled=False):
            for rows in _blocks(query):
                block = _Block(query, key, probabilities, membership, everywhere, rows, settings)
                weights_BGrbn = torch.softmax(block.logits(_gate(probabilities, block.far, settings, rows)), dim=-1)
                out_BGmD = weights_BGrbn.to(value.dtype).flatten(2, 3) @ value[:, :, : rows.stop]
                out_BTHD[:, rows] = _ungrouped(out_BGmD, rows).transpose(1, 2)
        return out_BTHD.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BHTD: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, probabilities, membership, everywhere = ctx.saved_tensors
        needs_query, needs_key, needs_value, needs_groups = ctx.needs_input_grad[:4]
        scale = ctx.settings.scoring.scale
        grad_query = torch.empty_like(query) if needs_query else None
        grad_key, grad_value = (
            torch.zeros(x.shape, dtype=probabilities.dtype, device=x.device) if needed else None
            for x, needed in ((key, needs_key), (value, needs_value))
        )
        leaf_BTK = probabilities.detach().requires_grad_(needs_groups)
        grad_groups = torch.zeros_like(leaf_BTK) if needs_groups else None
        with torch.autocast(query.device.type, enabled=False):
            for rows in _blocks(query):
                block = _Block(query, key, probabilities, membership, everywhere, rows, ctx.settings)
                with torch.enable_grad():
                    gate_Bbn = _gate(leaf_BTK, block.far, ctx.settings, rows)
                upstream_BGmD = _grouped(grad_BHTD, rows, key.shape[1])
                through_BGmn = (upstream_BGmD @ value[:, :, : rows.stop].transpose(2, 3)).to(leaf_BTK.dtype)
                weights_BGrbn, scores_BGrbn, grad_gate_Bbn = block.gradients(
                    gate_Bbn.detach(), through_BGmn, needs_groups
                )
                if grad_gate_Bbn is not None:
                    grad_groups += torch.autograd.grad(gate_Bbn, leaf_BTK, grad_gate_Bbn)[0]
                if grad_value is not None:
                    weights_BGmn = weights_BGrbn.to(value.dtype).flatten(2, 3)
                    grad_value[:, :, : rows.stop] += weights_BGmn.transpose(2, 3) @ upstream_BGmD
                scores_BGmn = scores_BGrbn.to(query.dtype).flatten(2, 3)
                if grad_query is not None:
                    grad_query[:, :, rows] = _ungrouped((scores_BGmn @ key[:, :, : rows.stop]) * scale, rows)
                if grad_key is not None:
                    grad_key[:, :, : rows.stop] += scores_BGmn.transpose(2, 3) @ block.q_BGmD
        grad_key = None if grad_key is None else (grad_key * scale).to(key.dtype)
        grad_value = None if grad_value is None else grad_value.to(value.dtype)
        return grad_query, grad_key, grad_value, grad_groups, None, None, None


def _blocks(q_BHTD: Tensor) -> list[slice]:
    """Rows of queries that are computed together; a block sees the keys up to its own end."""
    batch, heads, length, _ = q_BHTD.shape
    budget = CPU_BLOCK if q_BHTD.device.type == "cpu" else BLOCK
    rows = max(FEWEST_ROWS, budget // max(1, batch * heads * length) // FEWEST_ROWS * FEWEST_ROWS)
    return [slice(start, min(start + rows, length)) for start in range(0, length, rows)]


def _grouped(x_BHTD: Tensor, rows: slice, kv_heads: int) -> Tensor:
    """Some rows of (B, H, T, D) as (B, G, m, D), to be multiplied with the (B, G, n, D) of the keys."""
    return x_BHTD[:, :, rows].unflatten(1, (kv_heads, -1)).flatten(2, 3)


def _ungrouped(x_BGmD: Tensor, rows: slice) -> Tensor:
    """(B, G, m, D) as (B, H, b, D)."""
    return x_BGmD.unflatten(2, (-1, rows.stop - rows.start)).flatten(1, 2)


def _far(rows: slice, rule: PairRule, everywhere_BT: Tensor | None, device: torch.device) -> Tensor:
    """(b, n) or (B, b, n) True for pairs that are gated: beyond the window, and with no sink."""
    if rule.grows:
        place_n = torch.arange(rows.stop, device=device)
        pairs_bn = place_n < rule.nearest_far(place_n[rows])[:, None]
    else:
        pairs_bn = torch.ones(rows.stop - rows.start, rows.stop, dtype=torch.bool, device=device)
        pairs_bn = pairs_bn.tril(rows.start - rule.window - 1)
    pairs_bn[:, : rule.num_sinks] = False
    if everywhere_BT is None:
        return pairs_bn
    return pairs_bn & ~(everywhere_BT[:, rows, None] | everywhere_BT[:, None, : rows.stop])


def _gate(probabilities_BTK: Tensor, far_bn: Tensor, settings: _Settings, rows: slice) -> Tensor:
    """(B, b, n) what the groups do to a pair: a factor of the logit, a term of it, or (hard) a factor of the weight."""
    agreement_Bbn = probabilities_BTK[:, rows] @ probabilities_BTK[:, : rows.stop].transpose(1, 2)
    affinity_Bbn = agreement_Bbn.clamp(AFFINITY_FLOOR, 1.0)
    if settings.gate == "paper":
        return torch.where(far_bn, torch.sigmoid(settings.steepness * affinity_Bbn), 1.0)
    if settings.hard_top_k is None:
        return torch.where(far_bn, torch.log(affinity_Bbn), 0.0)
    return torch.where(far_bn, affinity_Bbn, 1.0)


class _Block:
    """The scores (B, G, r, b, n) of a block of rows, from the query and key on."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        probabilities: Tensor,
        membership: Tensor | None,
        everywhere: Tensor | None,
        rows: slice,
        settings: _Settings,
    ) -> None:
        self.rows, self.settings, self.membership = rows, settings, membership
        self.far = _far(rows, settings.rule, everywhere, probabilities.device)
        self.q_BGmD = _grouped(query, rows, key.shape[1])
        products_BGmn = self.q_BGmD @ key[:, :, : rows.stop].transpose(2, 3)
        self.products_BGrbn = products_BGmn.unflatten(2, (-1, rows.stop - rows.start)).to(probabilities.dtype)

    def scores(self) -> Tensor:
        """(B, G, r, b, n) before the gate."""
        scores, cap = self.products_BGrbn * self.settings.scoring.scale, self.settings.scoring.softcap
        return scores if cap is None else scores.div_(cap).tanh_().mul_(cap)

    def logits(self, gate_Bbn: Tensor, scores_BGrbn: Tensor | None = None) -> Tensor:
        """(B, G, r, b, n) after the gate; -inf for later keys and, under the hard mask, for dropped pairs."""
        settings, gate_B11bn = self.settings, gate_Bbn[:, None, None]
        if settings.additive:
            logits_BGrbn = torch.add(gate_B11bn, self.products_BGrbn, alpha=settings.scoring.scale)
        else:
            scores_BGrbn = self.scores() if scores_BGrbn is None else scores_BGrbn
            if settings.hard_top_k is not None:
                logits_BGrbn = scores_BGrbn.masked_fill(self._dropped(), float("-inf"))
            elif settings.gate == "paper":
                logits_BGrbn = scores_BGrbn * gate_B11bn
            else:
                logits_BGrbn = scores_BGrbn + gate_B11bn
        self._hide_later(logits_BGrbn)
        return logits_BGrbn

    def gradients(
        self, gate_Bbn: Tensor, through_BGmn: Tensor, needs_gate: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Weights, gradients of the products over the scale and of the gate; that of the weights is overwritten."""
        settings, grad_gate_Bbn = self.settings, None
        scores_BGrbn = None if settings.additive else self.scores()
        logits_BGrbn = self.logits(gate_Bbn, scores_BGrbn)
        weights_BGrbn = torch.softmax(logits_BGrbn, dim=-1)
        through_BGrbn = through_BGmn.view_as(weights_BGrbn)
        grads_BGrbn = _softmax_backward(through_BGrbn, weights_BGrbn, -1, weights_BGrbn.dtype)
        if settings.hard_top_k is not None:
            if needs_gate:
                assert scores_BGrbn is not None
                grad_gate_Bbn = self._straight_through(scores_BGrbn, logits_BGrbn, weights_BGrbn, through_BGrbn)
        elif needs_gate:
            grad_gate_Bbn = (grads_BGrbn if settings.gate == "log" else grads_BGrbn * scores_BGrbn).sum(dim=(1, 2))
        if settings.gate == "paper":
            grads_BGrbn = grads_BGrbn * gate_Bbn[:, None, None]
        if settings.scoring.softcap is not None:
            assert scores_BGrbn is not None
            grads_BGrbn = grads_BGrbn * (1 - (scores_BGrbn / settings.scoring.softcap).square())
        return weights_BGrbn, grads_BGrbn, grad_gate_Bbn

    def _straight_through(
        self, scores_BGrbn: Tensor, logits_BGrbn: Tensor, weights_BGrbn: Tensor, through_BGrbn: Tensor
    ) -> Tensor:
        """Gradient of a factor of every weight, dropped pairs' too, as if none were dropped; (B, b, n)."""
        delta_BGrb1 = (weights_BGrbn * through_BGrbn).sum(dim=-1, keepdim=True)
        every_BGrbn = scores_BGrbn - logits_BGrbn.amax(dim=-1, keepdim=True)
        self._hide_later(every_BGrbn)
        # The largest weight is 1 over the sum, which scales dropped pairs to the sum of the allowed ones.
        every_BGrbn.clamp_(max=LARGEST_EXPONENT).exp_().mul_(weights_BGrbn.amax(dim=-1, keepdim=True))
        return every_BGrbn.mul_(through_BGrbn - delta_BGrb1).sum(dim=(1, 2))

    def _hide_later(self, scores_BGrbn: Tensor) -> None:
        count = self.rows.stop - self.rows.start
        later_bb = torch.ones(count, count, dtype=torch.bool, device=scores_BGrbn.device).triu(1)
        scores_BGrbn[..., self.rows] = scores_BGrbn[..., self.rows].masked_fill(later_bb, float("-inf"))

    def _dropped(self) -> Tensor:
        """(B, 1, 1, b, n) far pairs that share no group."""
        assert self.membership is not None
        shared_Bbn = self.membership[:, self.rows, None] & self.membership[:, None, : self.rows.stop]
        return ((shared_Bbn == 0) & self.far)[:, None, None]
