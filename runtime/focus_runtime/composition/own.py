"""A layer's own attention, as it is without Focus: causal, inside its own sliding window where it has one.

Shape suffixes: B batch, H query heads, Q queries, T keys, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from focus_runtime.attention.dispatch import attend
from focus_runtime.attention.sliding import sliding_attention
from focus_runtime.composition.call import Call
from focus_runtime.composition.state import FocusLayer
from focus_runtime.mask.rule import PairRule


def own_attention(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """The layer's own attention, (B, Q, H, D)."""
    if layer.sliding is None or call.key.shape[2] <= layer.sliding:
        return _full(module, call)
    out_BHQD = sliding_attention(call.query, call.key, call.value, layer.sliding, call.scoring, call.padding)
    return out_BHQD.transpose(1, 2)


def _full(module: nn.Module, call: Call) -> Tensor:
    """Full causal attention, (B, Q, H, D): torch's SDPA, or our masked attention for softcap, which SDPA lacks."""
    query, key, value, padding = call.query, call.key, call.value, call.padding
    shape = (key.shape[0], key.shape[2])
    if call.scoring.softcap is not None:
        one_group_BT = torch.ones(shape, dtype=torch.int64, device=key.device)
        rule = PairRule(window=shape[1])
        out_BHQD = attend(query, key, value, one_group_BT, rule, call.scoring, padding, backend="masked")[0]
        return out_BHQD.transpose(1, 2)
    if padding is None and 1 < query.shape[2] != shape[1]:  # SDPA aligns is_causal to the first key, not to the last
        padding = torch.ones(shape, dtype=torch.bool, device=key.device)
    mask_B1QT = None if padding is None else _causal_mask(padding, query, key)
    causal = mask_B1QT is None and query.shape[2] > 1
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    return sdpa(
        module, query, key, value, mask_B1QT, scaling=call.scoring.scale, is_causal=causal, dropout=call.dropout
    )[0]


def _causal_mask(padding_BT: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """(B, 1, Q, T) bool."""
    length_q, length_k = query.shape[2], key.shape[2]
    row_Q = torch.arange(length_k - length_q, length_k, device=query.device)
    column_T = torch.arange(length_k, device=query.device)
    causal_QT, diagonal_QT = column_T[None, :] <= row_Q[:, None], column_T[None, :] == row_Q[:, None]
    return ((causal_QT & padding_BT[:, None, :]) | diagonal_QT)[:, None]  # the diagonal keeps padded rows finite
