"""One attention call of a composed module: its tensors, cropped to the tokens that exist, and what is checked of them.

Shape suffixes: B batch, H query heads (Hq), Q queries (Tq), T keys (Tk), D head size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from focus_runtime.attention.dispatch import one_dtype, rows_together
from focus_runtime.attention.scoring import Scoring
from focus_runtime.composition.heads import query_heads
from focus_runtime.composition.state import FocusLayer
from focus_runtime.errors import InputError, ModelError
from focus_runtime.models.structure import OTHER_MODEL


@dataclass(slots=True)
class Call:
    """One attention call: the tensors, cropped to the tokens that exist, and how scores are formed.

    Attributes:
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D).
        padding: (B, Tk) bool, True for real tokens, or None when all are.
        total: tokens of the whole text so far; more than Tk where a sliding cache dropped some.
        scoring: scale and softcap.
        dropout: probability, for the layer's own attention in training.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    padding: Tensor | None
    total: int
    scoring: Scoring
    dropout: float


def attention_call(
    layer: FocusLayer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    dropout: float,
) -> Call:
    """Crop what a static cache holds beyond the text, and check that mask and keys fit."""
    if key.shape != value.shape or query.shape[3] != key.shape[3]:
        raise ModelError(
            f"layer {layer.index} has queries of size {query.shape[3]}, keys of {key.shape[3]} and values of "
            f"{value.shape[3]}, which Focus does not support",
            expected="one head size",
            fix=OTHER_MODEL,
        )
    query, key, value = one_dtype(*rows_together(query, key, value))
    total, current = key.shape[2], layer.current_pass
    if current.cached is not None:
        total = current.history.seen if current.history is not None else int(current.cached.get_seq_length())
    elif query.shape[2] != total:
        raise InputError(
            f"layer {layer.index} got {total} keys for {query.shape[2]} queries but no cache that Focus can find",
            expected="a cache passed to the model",
            fix="call the model with use_cache=False",
        )
    if key.shape[2] > total:
        key, value = key[:, :, :total], value[:, :, :total]
        padding = None if padding is None else padding[:, :total]
    if padding is not None and padding.shape != (key.shape[0], key.shape[2]):
        raise InputError(
            f"attention_mask has shape {tuple(padding.shape)}",
            expected=f"{(key.shape[0], key.shape[2])}: one entry for every cached and new token",
            fix="pass the mask of the whole text, not of the new tokens alone",
        )
    scoring = Scoring(scaling if scaling is not None else query.shape[-1] ** -0.5, softcap)
    return Call(query, key, value, None if padding is None else padding.bool(), total, scoring, dropout)


def with_factors(layer: FocusLayer, query: Tensor, total: int, padding: Tensor | None = None) -> Tensor:
    """Queries of Focus, (B, Hq, Tq, D), multiplied by their head's factor once for each doubling beyond the window.

    A query that n tokens precede or are, is multiplied by factor ** log2(n / (window + 1)), and so are its logits.
    Where the window reaches all n of them nothing is multiplied.

    Args:
        layer: of the call.
        query: the newest tokens'.
        total: tokens of the whole text so far.
        padding: (B, Tk) bool, True for real tokens of the last Tk, or None when all are.
    """
    assert layer.router is not None, "layers without a router keep their own attention"
    factors_H = layer.router.logit_factors
    if factors_H is None or not layer.owner.config.logit_factors:
        return query
    reach, new = layer.owner.config.window + 1, query.shape[2]
    visible = min(total, layer.sliding or total)  # to the newest token
    if visible <= reach:
        return query
    if padding is None and new == 1:  # a decode step: each operation more is one in every layer
        return (query * (factors_H ** math.log2(visible / reach))[:, None, None]).to(query.dtype)
    if padding is None:
        visible_BT = torch.arange(total - new + 1, total + 1, device=query.device)[None]
    else:
        visible_BT = (total - padding.shape[1] + padding.cumsum(1))[:, -new:]
    doublings_BT = (visible_BT.clamp(reach, layer.sliding) / reach).log2()
    return (query * (factors_H[:, None] ** doublings_BT[:, None])[..., None]).to(query.dtype)


def of_heads(call: Call, part: slice | list[int]) -> Call:
    """The same call for some of its key-value heads and the query heads that share them."""
    query = query_heads(call.query, part, call.key.shape[1])
    return replace(call, query=query, key=call.key[:, part], value=call.value[:, part])
