"""The dense oracle: plain torch, any device, any k. Slow and O(T^2) on purpose; fast paths are tested against it.

Shape suffixes: B batch, H query heads (Hq), G key-value heads (Hkv), Q queries (Tq), T keys (Tk), D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.scoring import Scoring
from focus_runtime.mask.dense import allowed_to_last_queries
from focus_runtime.mask.rule import PairRule


def attend_allowed(
    q_BHQD: Tensor, k_BGTD: Tensor, v_BGTD: Tensor, allowed_B1QT: Tensor, scoring: Scoring
) -> tuple[Tensor, Tensor]:
    """Softmax attention over the allowed pairs, all scores at once, in fp32 at least whatever the inputs' dtype.

    In 16 bits the weights of a row would add up to 0.95 to 1.05. Heads that share keys share one copy of them.

    Args:
        q_BHQD: queries; k_BGTD, v_BGTD: keys and values, H a multiple of G.
        allowed_B1QT: bool.
        scoring: scale and softcap.

    Returns:
        out (B, H, Q, D) in the queries' dtype, zero where a query has no key; logsumexp (B, H, Q), -inf there.
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
    """Focus attention by its definition (METHOD section 3).

    Args:
        query: (B, H, Q, D), the last Q of the T positions; key, value: (B, G, T, D).
        membership: (B, T) int64 bit sets.
        rule: window and sinks.
        scoring: scale and softcap.
        key_padding: (B, T) bool, True for real tokens.

    Returns:
        out (B, H, Q, D), zero where a query has no key; logsumexp (B, H, Q), -inf there.
    """
    allowed_BQT = allowed_to_last_queries(membership, query.shape[2], rule, key_padding)
    return attend_allowed(query, key, value, allowed_BQT[:, None], scoring)
