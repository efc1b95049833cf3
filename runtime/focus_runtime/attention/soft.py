"""Soft gates for training routers: differentiable in the group probabilities. All T^2 pairs, on any device.

`gated_attention` walks blocks of query rows and keeps no score for the backward pass, which computes them again, so
that memory grows with T and a step costs about what the model's own attention costs. `gated_attention_reference` is the
plain, dense definition that it is tested against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from focus_runtime.routing.router import top_k_membership

AFFINITY_FLOOR = 1e-6
LARGEST_EXPONENT = 30.0  # reached by dropped pairs only, where the gradient needs a finite weight
CPU_BLOCK = 2**21  # scores of a block of rows that the cache of a CPU can hold
BLOCK = 2**26  # elsewhere: large enough to keep a GPU busy
FEWEST_ROWS = 64  # below which the matrix products lose their speed

_softmax_backward = torch.ops.aten._softmax_backward_data


@dataclass(frozen=True, slots=True)
class _Settings:
    """What `gated_attention` was asked for; hard_top_k is None wherever no hard mask applies."""

    window: int
    num_sinks: int
    gate: str
    scale: float
    steepness: float
    hard_top_k: int | None
    softcap: float | None


def gated_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    probabilities: Tensor,
    *,
    window: int,
    num_sinks: int,
    gate: str,
    scale: float,
    steepness: float = 8.0,
    hard_top_k: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Causal attention whose far pairs are weakened by how little their groups agree.

    Differentiable once. Scores are computed in the dtype of the probabilities, matrix products in the query's.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        probabilities: (B, T, K), rows sum to 1.
        window, num_sinks: pairs that are never weakened.
        gate: "log" multiplies the attention weight by the affinity g_i . g_j (log added to the logit);
            "paper" multiplies the logit by sigmoid(steepness * g_i . g_j) (equation 2).
        steepness: lambda of the paper gate.
        hard_top_k: with the log gate, use the hard top-k mask in the forward pass and the affinity's gradient in
            the backward pass (straight-through), so that training sees the mask inference uses.
        softcap: scores become softcap * tanh(scores / softcap) before they are gated.

    Returns:
        (B, Hq, T, D), a transposed view of (B, T, Hq, D).
    """
    hard = hard_top_k if gate == "log" else None
    settings = _Settings(window, num_sinks, gate, scale, steepness, hard, softcap)
    membership = None if hard is None else top_k_membership(probabilities.detach(), hard)
    return _Gated.apply(query, key, value, probabilities, membership, settings)


class _Gated(torch.autograd.Function):
    """Attention of grouped heads: G key heads, each with R = Hq / G query heads; n keys, b rows in a block."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        probabilities: Tensor,
        membership: Tensor | None,
        settings: _Settings,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, probabilities, membership)
        ctx.settings = settings
        batch, heads, length, size = query.shape
        out = torch.empty(batch, length, heads, size, dtype=value.dtype, device=value.device)
        with torch.autocast(query.device.type, enabled=False):
            for rows in _blocks(query):
                block = _Block(query, key, probabilities, membership, rows, settings)
                weights = torch.softmax(block.logits(_gate(probabilities, rows, settings)), dim=-1)
                found = weights.to(value.dtype).flatten(2, 3) @ value[:, :, : rows.stop]
                out[:, rows] = found.unflatten(2, (-1, rows.stop - rows.start)).flatten(1, 2).transpose(1, 2)
        return out.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, probabilities, membership = ctx.saved_tensors
        needs_query, needs_key, needs_value, needs_groups = ctx.needs_input_grad[:4]
        grad_query = torch.empty_like(query) if needs_query else None
        grad_key, grad_value = (
            torch.zeros(x.shape, dtype=probabilities.dtype, device=x.device) if needed else None
            for x, needed in ((key, needs_key), (value, needs_value))
        )
        leaf = probabilities.detach().requires_grad_(needs_groups)
        grad_groups = torch.zeros_like(leaf) if needs_groups else None
        with torch.autocast(query.device.type, enabled=False):
            for rows in _blocks(query):
                block = _Block(query, key, probabilities, membership, rows, ctx.settings)
                with torch.enable_grad():
                    gate = _gate(leaf, rows, ctx.settings)
                upstream = _grouped(grad, rows, key.shape[1])
                through = (upstream @ value[:, :, : rows.stop].transpose(2, 3)).to(leaf.dtype)
                weights, grad_scores, grad_gate = block.gradients(gate.detach(), through, needs_groups)
                if grad_gate is not None:
                    grad_groups += torch.autograd.grad(gate, leaf, grad_gate)[0]
                if grad_value is not None:
                    weights = weights.to(value.dtype).flatten(2, 3)
                    grad_value[:, :, : rows.stop] += weights.transpose(2, 3) @ upstream
                grad_scores = grad_scores.to(query.dtype).flatten(2, 3)
                if grad_query is not None:
                    found = (grad_scores @ key[:, :, : rows.stop]) * ctx.settings.scale
                    grad_query[:, :, rows] = found.unflatten(2, (-1, rows.stop - rows.start)).flatten(1, 2)
                if grad_key is not None:
                    grad_key[:, :, : rows.stop] += grad_scores.transpose(2, 3) @ block.query
        grad_key = None if grad_key is None else (grad_key * ctx.settings.scale).to(key.dtype)
        grad_value = None if grad_value is None else grad_value.to(value.dtype)
        return grad_query, grad_key, grad_value, grad_groups, None, None


def _blocks(query: Tensor) -> list[slice]:
    """Rows of queries that are computed together; a block sees the keys up to its own end."""
    batch, heads, length, _ = query.shape
    budget = CPU_BLOCK if query.device.type == "cpu" else BLOCK
    rows = max(FEWEST_ROWS, budget // max(1, batch * heads * length) // FEWEST_ROWS * FEWEST_ROWS)
    return [slice(start, min(start + rows, length)) for start in range(0, length, rows)]


def _grouped(x: Tensor, rows: slice, groups: int) -> Tensor:
    """Some rows of (B, Hq, T, D) as (B, G, R * b, D), beside the (B, G, n, D) of the keys."""
    return x[:, :, rows].unflatten(1, (groups, -1)).flatten(2, 3)


def _far(rows: slice, settings: _Settings, device: torch.device) -> Tensor:
    """(b, n) True for pairs that are gated: beyond the window, and not with a sink."""
    pairs = torch.ones(rows.stop - rows.start, rows.stop, dtype=torch.bool, device=device)
    pairs = pairs.tril(rows.start - settings.window - 1)
    pairs[:, : settings.num_sinks] = False
    return pairs


def _gate(probabilities: Tensor, rows: slice, settings: _Settings) -> Tensor:
    """(B, b, n) what the groups do to a pair: a factor of the logit, a term of it, or (hard) a factor of the weight."""
    far = _far(rows, settings, probabilities.device)
    agreement = probabilities[:, rows] @ probabilities[:, : rows.stop].transpose(1, 2)
    affinity = agreement.clamp(AFFINITY_FLOOR, 1.0)
    if settings.gate == "paper":
        return torch.where(far, torch.sigmoid(settings.steepness * affinity), 1.0)
    return (
        torch.where(far, torch.log(affinity), 0.0) if settings.hard_top_k is None else torch.where(far, affinity, 1.0)
    )


class _Block:
    """The scores (B, G, R, b, n) of a block of rows, from the query and key on."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        probabilities: Tensor,
        membership: Tensor | None,
        rows: slice,
        settings: _Settings,
    ) -> None:
        self.rows, self.settings, self.membership = rows, settings, membership
        self.query = _grouped(query, rows, key.shape[1])
        products = self.query @ key[:, :, : rows.stop].transpose(2, 3)
        self.products = products.unflatten(2, (-1, rows.stop - rows.start)).to(probabilities.dtype)

    def scores(self) -> Tensor:
        """Before the gate."""
        scores, cap = self.products * self.settings.scale, self.settings.softcap
        return scores if cap is None else scores.div_(cap).tanh_().mul_(cap)

    def logits(self, gate: Tensor, scores: Tensor | None = None) -> Tensor:
        """After the gate; -inf for later keys and, under the hard mask, for dropped pairs."""
        settings, gate = self.settings, gate[:, None, None]
        if settings.gate == "log" and settings.hard_top_k is None and settings.softcap is None:
            logits = torch.add(gate, self.products, alpha=settings.scale)
        else:
            scores = self.scores() if scores is None else scores
            if settings.hard_top_k is not None:
                logits = scores.masked_fill(self._dropped(), float("-inf"))
            else:
                logits = scores * gate if settings.gate == "paper" else scores + gate
        self._hide_later(logits)
        return logits

    def gradients(self, gate: Tensor, through: Tensor, needs_gate: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Weights, gradient of the products over the scale, and gradient of the gate (B, b, n).

        Args:
            through: gradient of the weights, (B, G, R * b, n); overwritten.
        """
        settings, grad_gate = self.settings, None
        plain = settings.gate == "log" and settings.hard_top_k is None and settings.softcap is None
        scores = None if plain else self.scores()
        logits = self.logits(gate, scores)
        weights = torch.softmax(logits, dim=-1)
        through = through.view_as(weights)
        grads = _softmax_backward(through, weights, -1, weights.dtype)
        if settings.hard_top_k is not None:
            if needs_gate:
                assert scores is not None
                grad_gate = self._straight_through(scores, logits, weights, through)
        elif needs_gate:
            grad_gate = (grads if settings.gate == "log" else grads * scores).sum(dim=(1, 2))
        if settings.gate == "paper":
            grads = grads * gate[:, None, None]
        if settings.softcap is not None:
            assert scores is not None
            grads = grads * (1 - (scores / settings.softcap).square())
        return weights, grads, grad_gate

    def _straight_through(self, scores: Tensor, logits: Tensor, weights: Tensor, through: Tensor) -> Tensor:
        """Gradient of a factor of every weight, dropped pairs' too, as if none were dropped; (B, b, n)."""
        delta = (weights * through).sum(dim=-1, keepdim=True)
        every = scores - logits.amax(dim=-1, keepdim=True)
        self._hide_later(every)
        # The largest weight is 1 over the sum, which scales dropped pairs to the sum of the allowed ones.
        every.clamp_(max=LARGEST_EXPONENT).exp_().mul_(weights.amax(dim=-1, keepdim=True))
        return every.mul_(through - delta).sum(dim=(1, 2))

    def _hide_later(self, scores: Tensor) -> None:
        count = self.rows.stop - self.rows.start
        later = torch.ones(count, count, dtype=torch.bool, device=scores.device).triu(1)
        scores[..., self.rows] = scores[..., self.rows].masked_fill(later, float("-inf"))

    def _dropped(self) -> Tensor:
        """(B, 1, 1, b, n) far pairs that share no group."""
        assert self.membership is not None
        shared = self.membership[:, self.rows, None] & self.membership[:, None, : self.rows.stop]
        return ((shared == 0) & _far(self.rows, self.settings, shared.device))[:, None, None]


def gated_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    probabilities: Tensor,
    *,
    window: int,
    num_sinks: int,
    gate: str,
    scale: float,
    steepness: float = 8.0,
    hard_top_k: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """What `gated_attention` computes, all pairs at once through autograd: O(B Hq T^2) memory. Arguments as there."""
    length = query.shape[2]
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    position = torch.arange(length, device=query.device)
    distance = position[:, None] - position[None, :]
    causal = distance >= 0
    always = (distance <= window) | (position[None, :] < num_sinks)
    affinity = (probabilities @ probabilities.transpose(-1, -2)).clamp(AFFINITY_FLOOR, 1.0)
    scores = (query @ key.transpose(-1, -2)).to(affinity.dtype) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if gate == "paper":
        scores = scores * torch.where(always, 1.0, torch.sigmoid(steepness * affinity))[:, None]
    elif hard_top_k is None:
        scores = scores + torch.where(always, 0.0, torch.log(affinity))[:, None]
    scores = scores.masked_fill(~causal, float("-inf"))
    if gate != "log" or hard_top_k is None:
        return torch.softmax(scores, dim=-1).to(value.dtype) @ value
    membership = top_k_membership(probabilities.detach(), hard_top_k)
    hard = ((membership[:, :, None] & membership[:, None, :]) != 0).to(affinity.dtype)
    passed = torch.where(always, 1.0, affinity + (hard - affinity).detach())[:, None]
    # The maximum of the allowed pairs alone: under a larger dropped score all allowed weights could round to zero.
    top = scores.detach().masked_fill(passed == 0, float("-inf")).amax(dim=-1, keepdim=True)
    weights = torch.exp((scores - top).clamp(max=LARGEST_EXPONENT)) * passed
    return (weights / weights.sum(dim=-1, keepdim=True)).to(value.dtype) @ value
