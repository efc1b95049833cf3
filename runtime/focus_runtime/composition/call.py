"""One attention call of a composed module: its tensors, cropped to the tokens that exist, and what is checked of them.

Shape suffixes: B batch, H query heads (Hq), Q queries (Tq), T keys (Tk), D head size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from focus_runtime.attention.dispatch import one_dtype, rows_together
from focus_runtime.attention.scoring import Scoring
from focus_runtime.budget import HeadCounts
from focus_runtime.composition.heads import Part, counts_of
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

    @property
    def counts(self) -> HeadCounts:
        """Its heads."""
        return counts_of(self.query, self.key)


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


def of_heads(call: Call, part: Part) -> Call:
    """The same call for some of its heads."""
    return replace(call, query=call.query[:, part.query], key=call.key[:, part.key], value=call.value[:, part.key])
