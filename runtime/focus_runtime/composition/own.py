"""A layer's own attention, as it is without Focus: causal, inside its own sliding window where it has one.

Shape suffixes: B batch, H query heads, Q queries, T keys, D head size.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from focus_runtime.attention.decode import DECODING
from focus_runtime.attention.dispatch import attend, grouped_on_gpu
from focus_runtime.attention.masked import sliding_attention
from focus_runtime.attention.reference import beside_sinks
from focus_runtime.composition.call import Call
from focus_runtime.composition.state import FocusLayer
from focus_runtime.gpu import WITHOUT_CUDNN, attention_fits
from focus_runtime.mask.rule import Extent, PairRule

NEAR = 128  # tokens about the query that kernels of Focus compute apart, where all keys are seen


def own_attention(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """The layer's own attention, (B, Q, H, D)."""
    everything = layer.sliding is None or call.key.shape[2] <= layer.sliding
    if everything and call.sinks is None:
        return _full(module, call)
    if call.query.shape[2] == call.total and _fits_one_group(call):
        return _as_one_group(call, None if everything else layer.sliding)
    reach = call.key.shape[2] if layer.sliding is None else layer.sliding
    tensors = (call.query, call.key, call.value)
    return sliding_attention(*tensors, reach, call.scoring, call.padding, sinks=call.sinks).transpose(1, 2)


def _full(module: nn.Module, call: Call) -> Tensor:
    """Full causal attention, (B, Q, H, D): torch's SDPA, or our masked attention for softcap, which SDPA lacks."""
    query, key, value, padding = call.query, call.key, call.value, call.padding
    shape = (key.shape[0], key.shape[2])
    if call.scoring.softcap is not None and _fits_one_group(call):
        return _as_one_group(call, None)
    if call.scoring.softcap is not None:
        one_group_BT = torch.ones(shape, dtype=torch.int64, device=key.device)
        rule, step = PairRule(window=shape[1]), query.shape[2] == 1 and padding is None
        backend = "decode" if step and attention_fits(DECODING, query, key, value) else "masked"
        out_BHQD = attend(query, key, value, one_group_BT, rule, call.scoring, padding, backend=backend)[0]
        return out_BHQD.transpose(1, 2)
    if padding is None and 1 < query.shape[2] != shape[1]:  # SDPA aligns is_causal to the first key, not to the last
        padding = torch.ones(shape, dtype=torch.bool, device=key.device)
    mask_B1QT = None if padding is None else _causal_mask(padding, query, key)
    causal = mask_B1QT is None and query.shape[2] > 1
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    shared_by = query.shape[1] // key.shape[1]
    if getattr(module, "num_key_value_groups", shared_by) != shared_by:  # some query heads of a key-value head alone
        module = _shared_by(shared_by)
    step = query.shape[2] == 1 and query.device.type == "cuda"
    with WITHOUT_CUDNN if step else nullcontext():
        return sdpa(
            module, query, key, value, mask_B1QT, scaling=call.scoring.scale, is_causal=causal, dropout=call.dropout
        )[0]


@functools.cache
def _shared_by(number: int) -> nn.Module:
    """Stands for an attention module of which some heads are computed, with so many query heads to a key-value head."""
    module = nn.Module()
    module.num_key_value_groups = number  # type: ignore[assignment]
    return module


def _fits_one_group(call: Call) -> bool:
    """Whether the GPU kernels of Focus take this call."""
    return grouped_on_gpu("auto", call.query, call.key, call.value, NEAR, call.scoring, call.padding)


def _as_one_group(call: Call, sliding: int | None) -> Tensor:
    """Attention to all keys in reach, (B, Q, H, D), as Focus with every token in one group."""
    one_group_BT = torch.ones((call.key.shape[0], call.key.shape[2]), dtype=torch.int64, device=call.key.device)
    rule, extent = PairRule(NEAR, sliding_window=sliding), Extent(1, 1, uniform=True)
    tensors = (call.query, call.key, call.value, one_group_BT)
    out_BHQD, lse_BHQ = attend(
        *tensors, rule, call.scoring, backend="decomposed", return_lse=call.sinks is not None, extent=extent
    )
    if call.sinks is not None:
        assert lse_BHQ is not None, "it was asked for"
        out_BHQD = beside_sinks(out_BHQD, lse_BHQ, call.sinks)
    return out_BHQD.transpose(1, 2)


def _causal_mask(padding_BT: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """(B, 1, Q, T) bool."""
    length_q, length_k = query.shape[2], key.shape[2]
    row_Q = torch.arange(length_k - length_q, length_k, device=query.device)
    column_T = torch.arange(length_k, device=query.device)
    causal_QT, diagonal_QT = column_T[None, :] <= row_Q[:, None], column_T[None, :] == row_Q[:, None]
    return ((causal_QT & padding_BT[:, None, :]) | diagonal_QT)[:, None]  # the diagonal keeps padded rows finite
