"""Plain masked attention in query blocks: any k, padding and softcap; memory O(block * T), no future keys computed."""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.checks import needs_gradient
from focus_runtime.attention.flash import causal_flash, masked_flash
from focus_runtime.attention.merging import merge
from focus_runtime.attention.reference import attend, token_positions
from focus_runtime.mask.rule import allowed_pairs, narrow

SQUARE = 2048  # tokens a side; smaller ones leave the kernel small tiles
BLOCK, SMALLEST_BLOCK = 512, 64
BLOCK_PAIRS = 1 << 22  # pairs of one block: long texts get smaller blocks, so that memory stays about the same


def covers_everything(membership: Tensor, window: int, key_length: int) -> bool:
    """True when Focus is full causal attention: the window spans the text, or one group holds every token."""
    if window >= key_length - 1:
        return True
    common = membership[:, :1]
    return bool(((membership & common) == common).all()) and bool((common != 0).all())


def _in_squares(
    query: Tensor, key: Tensor, value: Tensor, membership: Tensor, window: int, num_sinks: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Square blocks, which let the kernel use its largest tiles and skip the future; merged by logsumexp."""
    length = query.shape[2]
    position = torch.arange(length, dtype=torch.int32)
    outs, lses = [], []
    for start in range(0, length, SQUARE):
        rows = slice(start, start + SQUARE)
        parts = []
        for first in range(0, start + 1, SQUARE):
            keys = slice(first, min(first + SQUARE, length))
            allowed = allowed_pairs(
                membership[:, rows], membership[:, keys], position[rows], position[keys], window, num_sinks
            )
            block = (query[:, :, rows], key[:, :, keys], value[:, :, keys], allowed[:, None])
            diagonal = first == start
            parts.append(masked_flash(*block, scale, causal=diagonal, empty_rows=not diagonal))
        out, lse = merge(parts) if len(parts) > 1 else parts[0]
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs, dim=2), torch.cat(lses, dim=2)


def masked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    *,
    window: int,
    num_sinks: int = 0,
    key_padding: Tensor | None = None,
    scale: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention with a mask per block of queries. Shapes as in `focus_attention`."""
    length_q, length_k = query.shape[2], key.shape[2]
    first = length_k - length_q
    fast = query.device.type == "cpu" and softcap is None
    plain = fast and first == 0 and key_padding is None and covers_everything(membership, window, length_k)
    if plain:
        return causal_flash(query, key, value, scale)
    if (
        fast and first == 0 and key_padding is None and not needs_gradient(query, key, value)
    ):  # a merge has no autograd, see backward.py
        return _in_squares(query, key, value, narrow(membership), window, num_sinks, scale)
    position = token_positions(membership, key_padding).to(torch.int32)
    membership = narrow(membership)
    outs, lses = [], []
    block_size = min(BLOCK, max(SMALLEST_BLOCK, BLOCK_PAIRS // length_k))
    for start in range(0, length_q, block_size):
        stop = min(start + block_size, length_q)
        rows, keys = slice(first + start, first + stop), slice(0, first + stop)
        allowed = allowed_pairs(
            membership[:, rows], membership[:, keys], position[:, rows], position[:, keys], window, num_sinks
        )
        if key_padding is not None:
            allowed = allowed & key_padding[:, None, keys]
        block = (query[:, :, start:stop], key[:, :, keys], value[:, :, keys], allowed[:, None])
        empty = key_padding is not None
        out, lse = masked_flash(*block, scale, empty_rows=empty) if fast else attend(*block, scale, softcap)
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs, dim=2), torch.cat(lses, dim=2)
