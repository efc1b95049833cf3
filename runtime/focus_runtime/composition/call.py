"""One attention call of a composed module: its tensors, cropped to the tokens that exist, and what is checked of them.

Shape suffixes: B batch, H query heads (Hq), Q queries (Tq), T keys (Tk), D head size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn.functional import pad

from focus_runtime.attention.dispatch import one_dtype, rows_together
from focus_runtime.attention.reference import Scoring
from focus_runtime.budget import HeadCounts
from focus_runtime.composition.heads import Part, counts_of
from focus_runtime.composition.state import FocusLayer
from focus_runtime.errors import InputError


@dataclass(slots=True)
class Call:
    """One attention call: the tensors, cropped to the tokens that exist, and how scores are formed.

    Attributes:
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D).
        padding: (B, Tk) bool, True for real tokens, or None when all are.
        total: tokens of the whole text so far; more than Tk where a sliding cache dropped some.
        scoring: scale and softcap.
        dropout: probability, for the layer's own attention in training.
        sinks: (Hq,) learned sinks, one more logit for every query of a head; None without them.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    padding: Tensor | None
    total: int
    scoring: Scoring
    dropout: float
    sinks: Tensor | None = None

    @property
    def counts(self) -> HeadCounts:
        """Its heads."""
        return counts_of(self.query, self.key)


def of_one_size(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same attention with queries, keys and values of one head size: zeros are added, and dropped from the result.

    Args:
        query: (B, Hq, Tq, D); key: (B, Hkv, Tk, D); value: (B, Hkv, Tk, Dv), as of multi-head latent attention.
    """
    size = max(key.shape[3], value.shape[3])
    query, key, value = (x if x.shape[3] == size else pad(x, (0, size - x.shape[3])) for x in (query, key, value))
    return query, key, value


def checked_call(layer: FocusLayer, call: Call) -> Call:
    """The same call without what a static cache holds beyond the text; mask and keys fit.

    Args:
        layer: of the call.
        call: as it came: with the padding of all keys, and `total` 0 unless it is one document of several.
    """
    query, key, value = one_dtype(*rows_together(call.query, call.key, call.value))
    current, padding = layer.current_pass, call.padding
    if call.total:
        total = call.total
    elif current.cached is not None:
        total = current.history.seen if current.history is not None else int(current.cached.get_seq_length())
    elif query.shape[2] != key.shape[2] and layer.router is not None:
        raise InputError(
            f"layer {layer.index} got {key.shape[2]} keys for {query.shape[2]} queries but no cache that Focus can "
            "find",
            expected="a cache passed to the model",
            fix="call the model with use_cache=False",
        )
    else:
        total = key.shape[2]
    if key.shape[2] > total:
        key, value = key[:, :, :total], value[:, :, :total]
        padding = None if padding is None else padding[:, :total]
    if padding is not None and padding.shape != (key.shape[0], key.shape[2]):
        raise InputError(
            f"attention_mask has shape {tuple(padding.shape)}",
            expected=f"{(key.shape[0], key.shape[2])}: one entry for every cached and new token",
            fix="pass the mask of the whole text, not of the new tokens alone",
        )
    return replace(call, query=query, key=key, value=value, padding=padding, total=total)


def of_heads(call: Call, part: Part) -> Call:
    """The same call for some of its heads."""
    sinks = None if call.sinks is None else call.sinks[part.query]
    query, key, value = call.query[:, part.query], call.key[:, part.key], call.value[:, part.key]
    return replace(call, query=query, key=key, value=value, sinks=sinks)
