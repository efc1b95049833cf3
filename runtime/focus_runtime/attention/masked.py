"""Plain masked attention in query blocks: any k, padding and softcap; memory O(block * T), no future keys computed.

Shape suffixes: B batch, H query heads, Q queries, T keys, D head size; b and t are a block's queries and keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from focus_runtime.attention.flash import causal_flash, masked_flash
from focus_runtime.attention.reference import Scoring, attend_allowed, beside_sinks, merge, needs_gradient
from focus_runtime.mask.allowed_pairs import allowed_pairs, narrow, token_positions
from focus_runtime.mask.rule import Extent, PairRule

SQUARE = 2048  # tokens a side; smaller ones leave the kernel small tiles
BLOCK, SMALLEST_BLOCK = 512, 64
BLOCK_PAIRS = 1 << 22  # pairs of one block: long texts get smaller blocks, so that memory stays about the same


def covers_everything(membership: Tensor, window: int, key_length: int, extent: Extent | None = None) -> bool:
    """True when Focus is full causal attention: the window spans the text, or one group holds every token.

    Args:
        extent: what is known of the memberships; decides without looking at them, so that nothing waits for a GPU.
    """
    if window >= key_length - 1:
        return True
    if extent is not None and (extent.uniform or extent.beyond) and membership.device.type != "cpu":
        return extent.top_k == extent.num_groups
    common_B1 = membership[:, :1]
    return bool(((membership & common_B1) == common_B1).all()) and bool((common_B1 != 0).all())


def _in_squares(
    query: Tensor, key: Tensor, value: Tensor, membership_BT: Tensor, rule: PairRule, scale: float
) -> tuple[Tensor, Tensor]:
    """Square blocks, which let the kernel use its largest tiles and skip the future; merged by logsumexp."""
    length = query.shape[2]
    position_T = torch.arange(length, dtype=torch.int32)
    results = []
    for start in range(0, length, SQUARE):
        rows, parts = slice(start, start + SQUARE), []
        for first in range(0, start + 1, SQUARE):
            keys = slice(first, first + SQUARE)
            allowed_Bbt = allowed_pairs(
                membership_BT[:, rows], membership_BT[:, keys], position_T[rows], position_T[keys], rule
            )
            block = (query[:, :, rows], key[:, :, keys], value[:, :, keys], allowed_Bbt[:, None])
            diagonal = first == start
            parts.append(masked_flash(*block, scale, causal=diagonal, empty_rows=not diagonal))
        results.append(merge(parts))
    return _joined(results)


def _joined(results: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Outputs and logsumexps of blocks of queries, one after the other."""
    outs, lses = zip(*results, strict=True)
    return torch.cat(outs, dim=2), torch.cat(lses, dim=2)


def masked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    key_padding: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention with a mask per block of queries."""
    length_q, length_k = query.shape[2], key.shape[2]
    first = length_k - length_q
    fast = query.device.type == "cpu" and scoring.softcap is None
    plain = fast and first == 0 and key_padding is None
    if plain and covers_everything(membership, rule.window, length_k):
        return causal_flash(query, key, value, scoring.scale)
    if plain and not needs_gradient(query, key, value):  # a merge has no autograd, see decomposed_backward.py
        return _in_squares(query, key, value, narrow(membership), rule, scoring.scale)
    position_BT = token_positions(membership, key_padding).to(torch.int32)
    membership_BT = narrow(membership)
    results = []
    block_size = min(BLOCK, max(SMALLEST_BLOCK, BLOCK_PAIRS // length_k))
    for start in range(0, length_q, block_size):
        stop = min(start + block_size, length_q)
        rows, keys = slice(first + start, first + stop), slice(0, first + stop)
        allowed_Bbt = allowed_pairs(
            membership_BT[:, rows], membership_BT[:, keys], position_BT[:, rows], position_BT[:, keys], rule
        )
        if key_padding is not None:
            allowed_Bbt = allowed_Bbt & key_padding[:, None, keys]
        block = (query[:, :, start:stop], key[:, :, keys], value[:, :, keys], allowed_Bbt[:, None])
        if fast:
            results.append(masked_flash(*block, scoring.scale, empty_rows=key_padding is not None))
        else:
            results.append(attend_allowed(*block, scoring))
    return _joined(results)


@dataclass(frozen=True, slots=True)
class WindowedFocus:
    """Focus inside a sliding window.

    Attributes:
        membership: (B, Tk) int64 bit sets of the keys.
        position: (B, Tk) int64, counted from the first real token of the whole text, not of the keys at hand.
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
        sinks: (Hq,) learned sinks, one more logit for every query of a head.

    Returns:
        (B, Hq, Tq, D); queries that are padding hold arbitrary finite values.
    """
    length_q, length_k = query.shape[2], key.shape[2]
    first = length_k - length_q
    if focus is None:
        every = torch.ones(1, length_k, dtype=torch.int64, device=key.device)
        focus = WindowedFocus(every, token_positions(every, None), PairRule(0))
    members, position, rule = focus.membership, focus.position, replace(focus.rule, sliding_window=sliding_window)
    outs = []
    for start in range(0, length_q, BLOCK):
        stop = min(start + BLOCK, length_q)
        rows, keys = slice(first + start, first + stop), slice(max(0, first + start - sliding_window + 1), first + stop)
        allowed_Bbt = allowed_pairs(members[:, rows], members[:, keys], position[:, rows], position[:, keys], rule)
        if key_padding is not None:
            diagonal_Bbt = position[:, rows, None] == position[:, None, keys]  # keeps padded rows finite
            allowed_Bbt = (allowed_Bbt & key_padding[:, None, keys]) | diagonal_Bbt
        block, allowed_B1bt = (query[:, :, start:stop], key[:, :, keys], value[:, :, keys]), allowed_Bbt[:, None]
        if sinks is None and scoring.softcap is None:  # torch's SDPA has neither
            shared = query.shape[1] != key.shape[1]
            run = torch.nn.functional.scaled_dot_product_attention
            outs.append(run(*block, attn_mask=allowed_B1bt, scale=scoring.scale, enable_gqa=shared))
        else:
            out, lse = attend_allowed(*block, allowed_B1bt, scoring)
            outs.append(out if sinks is None else beside_sinks(out, lse, sinks))
    return torch.cat(outs, dim=2)
