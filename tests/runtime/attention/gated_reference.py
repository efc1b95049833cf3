# ruff: noqa: N806
"""Soft gates by their definition, which `gated_attention` is tested against: dense, O(B H T^2) memory."""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.reference import Scoring
from focus_runtime.attention.soft import AFFINITY_FLOOR, LARGEST_EXPONENT
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.router import top_k_membership


def gated_attention_reference(
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
    """All pairs at once through autograd."""
    length = query.shape[2]
    repeats = query.shape[1] // key.shape[1]
    k_BHTD, v_BHTD = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    position_T = torch.arange(length, device=query.device)
    distance_TT = position_T[:, None] - position_T[None, :]
    always_TT = (distance_TT <= rule.near(position_T)[:, None]) | (position_T[None, :] < rule.num_sinks)
    always_BTT = always_TT[None]
    if everywhere is not None:
        always_BTT = always_BTT | everywhere[:, :, None] | everywhere[:, None, :]
    affinity_BTT = (probabilities @ probabilities.transpose(-1, -2)).clamp(AFFINITY_FLOOR, 1.0)
    scores_BHTT = scoring.capped((query @ k_BHTD.transpose(-1, -2)).to(affinity_BTT.dtype) * scoring.scale)
    if gate == "paper":
        scores_BHTT = scores_BHTT * torch.where(always_BTT, 1.0, torch.sigmoid(steepness * affinity_BTT))[:, None]
    elif hard_top_k is None:
        scores_BHTT = scores_BHTT + torch.where(always_BTT, 0.0, torch.log(affinity_BTT))[:, None]
    scores_BHTT = scores_BHTT.masked_fill(distance_TT < 0, float("-inf"))
    if gate != "log" or hard_top_k is None:
        return torch.softmax(scores_BHTT, dim=-1).to(v_BHTD.dtype) @ v_BHTD
    membership_BT = top_k_membership(probabilities.detach(), hard_top_k)
    hard_BTT = ((membership_BT[:, :, None] & membership_BT[:, None, :]) != 0).to(affinity_BTT.dtype)
    passed_B1TT = torch.where(always_BTT, 1.0, affinity_BTT + (hard_BTT - affinity_BTT).detach())[:, None]
    # The maximum of the allowed pairs alone: under a larger dropped score all allowed weights could round to zero.
    top_BHT1 = scores_BHTT.detach().masked_fill(passed_B1TT == 0, float("-inf")).amax(dim=-1, keepdim=True)
    weights_BHTT = torch.exp((scores_BHTT - top_BHT1).clamp(max=LARGEST_EXPONENT)) * passed_B1TT
    return (weights_BHTT / weights_BHTT.sum(dim=-1, keepdim=True)).to(v_BHTD.dtype) @ v_BHTD
