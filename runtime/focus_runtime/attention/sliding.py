"""Attention of a sliding-window layer, with or without Focus inside its window: blocks of queries against the keys in
reach, so that memory grows with T times the window, never with T x T. It knows nothing of models or caches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.attention.reference import attend
from focus_runtime.mask.rule import allowed_pairs

BLOCK = 512


@dataclass(frozen=True, slots=True)
class WindowedFocus:
    """Focus inside a sliding window.

    Attributes:
        membership: (B, Tk) int64 bit sets of the keys.
        position: (B, Tk) int64, counted from the first real token of the whole text, not of the keys at hand.
        window: w; num_sinks: s.
    """

    membership: Tensor
    position: Tensor
    window: int
    num_sinks: int


def sliding_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    sliding_window: int,
    scale: float,
    softcap: float | None = None,
    key_padding: Tensor | None = None,
    focus: WindowedFocus | None = None,
) -> Tensor:
    """Causal attention to the last `sliding_window` tokens, the query's own among them.

    Pair (i, j) is allowed when 0 <= i - j < sliding_window and, with `focus`, the Focus mask allows it too.

    Args:
        query: (B, Hq, Tq, D), the last Tq of the Tk positions; key, value: (B, Hkv, Tk, D).
        key_padding: (B, Tk) bool, True for real tokens.

    Returns:
        (B, Hq, Tq, D); queries that are padding hold arbitrary finite values.
    """
    length_q, length_k = query.shape[2], key.shape[2]
    first = length_k - length_q
    outs = []
    for start in range(0, length_q, BLOCK):
        stop = min(start + BLOCK, length_q)
        rows, keys = slice(first + start, first + stop), slice(max(0, first + start - sliding_window + 1), first + stop)
        allowed = _in_window(rows, keys, sliding_window, query.device)[None]
        if focus is not None:
            allowed = allowed & allowed_pairs(
                focus.membership[:, rows],
                focus.membership[:, keys],
                focus.position[:, rows],
                focus.position[:, keys],
                focus.window,
                focus.num_sinks,
            )
        if key_padding is not None:
            diagonal = _in_window(rows, keys, 1, query.device)
            allowed = (allowed & key_padding[:, None, keys]) | diagonal  # the diagonal keeps padded rows finite
        block = (query[:, :, start:stop], key[:, :, keys], value[:, :, keys])
        if softcap is not None:  # torch's SDPA has none
            outs.append(attend(*block, allowed[:, None], scale, softcap)[0])
        else:
            outs.append(
                torch.nn.functional.scaled_dot_product_attention(
                    *block, attn_mask=allowed[:, None], scale=scale, enable_gqa=query.shape[1] != key.shape[1]
                )
            )
    return torch.cat(outs, dim=2)


def _in_window(rows: slice, keys: slice, reach: int, device: torch.device) -> Tensor:
    """(rows, keys) bool: 0 <= i - j < reach."""
    i = torch.arange(rows.start, rows.stop, device=device)
    j = torch.arange(keys.start, keys.stop, device=device)
    distance = i[:, None] - j[None, :]
    return (distance >= 0) & (distance < reach)
