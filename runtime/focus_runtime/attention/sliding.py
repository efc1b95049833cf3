"""Attention of a sliding-window layer, with or without Focus inside its window: blocks of queries against the keys in
reach, so that memory grows with T times the window, never with T x T.

Shape suffixes: B batch, b queries and t keys of a block; Hq, Hkv, Tq, Tk and D as in `focus_attention`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.attention.merging import beside_sinks
from focus_runtime.attention.reference import attend_allowed
from focus_runtime.attention.scoring import Scoring
from focus_runtime.mask.dense import allowed_pairs
from focus_runtime.mask.rule import PairRule

BLOCK = 512


@dataclass(frozen=True, slots=True)
class WindowedFocus:
    """Focus inside a sliding window.

    Attributes:
        membership: (B, Tk) int64 bit sets of the keys.
        position: (B, Tk) int64, counted from the first real token of the whole text, not of the keys at hand.
        rule: window and sinks of Focus.
    """

    membership: Tensor
    position: Tensor
    rule: PairRule


def sliding_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sliding_window: int,
    scoring: Scoring,
    key_padding: Tensor | None = None,
    *,
    focus: WindowedFocus | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Causal attention to the last `sliding_window` tokens, the query's own among them.

    Pair (i, j) is allowed when 0 <= i - j < sliding_window and, with `focus`, the Focus mask allows it too.

    Args:
        query: (B, Hq, Tq, D), the last Tq of the Tk positions; key, value: (B, Hkv, Tk, D).
        sliding_window: the layer's own window in tokens.
        scoring: scale and softcap.
        key_padding: (B, Tk) bool, True for real tokens.
        focus: the Focus mask; full attention inside the window when None.
        sinks: (Hq,) learned sinks, one more logit for every query of a head.

    Returns:
        (B, Hq, Tq, D); queries that are padding hold arbitrary finite values.
    """
    length_q, length_k = query.shape[2], key.shape[2]
    first = length_k - length_q
    outs = []
    for start in range(0, length_q, BLOCK):
        stop = min(start + BLOCK, length_q)
        rows, keys = slice(first + start, first + stop), slice(max(0, first + start - sliding_window + 1), first + stop)
        allowed_Bbt = _in_window(rows, keys, sliding_window, query.device)[None]
        if focus is not None:
            members, position = focus.membership, focus.position
            allowed_Bbt = allowed_Bbt & allowed_pairs(
                members[:, rows], members[:, keys], position[:, rows], position[:, keys], focus.rule
            )
        if key_padding is not None:
            diagonal_bt = _in_window(rows, keys, 1, query.device)  # keeps padded rows finite
            allowed_Bbt = (allowed_Bbt & key_padding[:, None, keys]) | diagonal_bt
        block = (query[:, :, start:stop], key[:, :, keys], value[:, :, keys])
        if sinks is not None:
            outs.append(beside_sinks(*attend_allowed(*block, allowed_Bbt[:, None], scoring), sinks))
        elif scoring.softcap is not None:  # torch's SDPA has none
            outs.append(attend_allowed(*block, allowed_Bbt[:, None], scoring)[0])
        else:
            shared_heads = query.shape[1] != key.shape[1]
            outs.append(
                torch.nn.functional.scaled_dot_product_attention(
                    *block, attn_mask=allowed_Bbt[:, None], scale=scoring.scale, enable_gqa=shared_heads
                )
            )
    return torch.cat(outs, dim=2)


def _in_window(rows: slice, keys: slice, reach: int, device: torch.device) -> Tensor:
    """(b, t) bool: 0 <= i - j < reach."""
    i = torch.arange(rows.start, rows.stop, device=device)
    j = torch.arange(keys.start, keys.stop, device=device)
    distance_bt = i[:, None] - j[None, :]
    return (distance_bt >= 0) & (distance_bt < reach)
