"""Soft gates for training routers: differentiable in the group probabilities. Dense, O(T^2), any device."""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.router import top_k_membership

AFFINITY_FLOOR = 1e-6
LARGEST_EXPONENT = 30.0  # reached by dropped pairs only, where the gradient needs a finite weight


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
        (B, Hq, T, D).
    """
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
