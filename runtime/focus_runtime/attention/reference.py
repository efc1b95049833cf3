"""The dense oracle: plain torch, any device, any k. Slow and O(T^2) on purpose; fast paths are tested against it.

Shape suffixes: B batch, H query heads (Hq), G key-value heads (Hkv), Q queries (Tq), T keys (Tk), D head size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.mask.allowed_pairs import allowed_to_last_queries
from focus_runtime.mask.rule import PairRule

LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the product of a query and a key becomes a logit.

    Attributes:
        softcap: logits become softcap * tanh(logits / softcap); None for no cap.
    """

    scale: float
    softcap: float | None = None

    def in_base_two(self) -> tuple[float, float]:
        """Factor on the product, and cap, of logits for powers of two.

        With a cap the factor gives twice the argument of tanh; the cap is 0 where there is none.
        """
        if self.softcap is None:
            return self.scale * LOG2_E, 0.0
        return self.scale * LOG2_E * 2 / self.softcap, self.softcap * LOG2_E

    def capped(self, scores: Tensor) -> Tensor:
        """Logits of scores that are scaled already, any shape."""
        if self.softcap is None:
            return scores
        return self.softcap * torch.tanh(scores / self.softcap)


def attend_allowed(
    q_BHQD: Tensor, k_BGTD: Tensor, v_BGTD: Tensor, allowed_B1QT: Tensor, scoring: Scoring
) -> tuple[Tensor, Tensor]:
    """Softmax attention over the allowed pairs, all scores at once, in fp32 at least whatever the inputs' dtype.

    In 16 bits the weights of a row would add up to 0.95 to 1.05. Heads that share keys share one copy of them.
    """
    kind = torch.promote_types(q_BHQD.dtype, torch.float32)
    batch, heads, length_q, size = q_BHQD.shape
    shared, length_k = k_BGTD.shape[1:3]
    rows = heads // shared * length_q  # queries of the heads that share keys
    with torch.autocast(q_BHQD.device.type, enabled=False):
        q_BGrD = q_BHQD.to(kind).reshape(batch, shared, rows, size)
        scores_BGrT = q_BGrD @ k_BGTD.to(kind).transpose(-1, -2) * scoring.scale
        scores_BHQT = scoring.capped(scores_BGrT.view(batch, heads, length_q, length_k))
        scores_BHQT = scores_BHQT.masked_fill(~allowed_B1QT, float("-inf"))
        lse_BHQ = torch.logsumexp(scores_BHQT, dim=-1)
        weights_BHQT = torch.exp(scores_BHQT - lse_BHQ.masked_fill(lse_BHQ == float("-inf"), 0.0)[..., None])
        out_BGrD = weights_BHQT.view(batch, shared, rows, length_k) @ v_BGTD.to(kind)
    return out_BGrD.view(batch, heads, length_q, v_BGTD.shape[3]).to(q_BHQD.dtype), lse_BHQ


def reference_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    key_padding: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention by its definition (METHOD section 3)."""
    allowed_BQT = allowed_to_last_queries(membership, query.shape[2], rule, key_padding)
    return attend_allowed(query, key, value, allowed_BQT[:, None], scoring)


def merge(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Output (..., T, D) and logsumexp (..., T), -inf without keys, of disjoint key sets, from those of each."""
    lses_PT = torch.stack([lse_T for _, lse_T in parts])
    top_T = lses_PT.amax(dim=0)
    weights_PT = torch.exp(lses_PT - top_T.masked_fill(top_T == float("-inf"), 0.0))
    total_T = weights_PT.sum(dim=0)
    weights_PT = weights_PT / total_T.clamp_min(torch.finfo(total_T.dtype).tiny)
    out_TD = parts[0][0] * weights_PT[0][..., None].to(parts[0][0].dtype)
    for (part_TD, _), weight_T in zip(parts[1:], weights_PT[1:], strict=True):
        out_TD = torch.addcmul(out_TD, part_TD, weight_T[..., None].to(part_TD.dtype))
    return out_TD, top_T + torch.log(total_T)


def beside_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
    """The same attention where one more logit of each head, that of its learned sink, takes a share of the weights."""
    share_BHQ = torch.sigmoid(lse.float() - sinks.float()[:, None])
    return (out * share_BHQ[..., None]).to(out.dtype)


def needs_gradient(*tensors: Tensor) -> bool:
    """Whether a backward pass through these may follow."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
