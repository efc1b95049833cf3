"""Exact Focus attention for a few queries over many keys: find the keys they may see, gather those rows, attend.

Finding them is one pass over the bit sets, 8 bytes a token; keys and values, hundreds of times larger, are read only
where a query may look. So a decode step costs what it attends to, not what came before. Any device, any k, padding and
softcap; autograd works, since everything is plain torch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.masked import masked_attention
from focus_runtime.attention.reference import token_positions
from focus_runtime.mask import allowed_pairs

MAX_QUERIES = 16  # more queries see most keys between them, whatever their groups
GATHER_FROM = 512  # keys; below this the masked path is as fast, benchmarks/decode_cpu.py
GATHER_BELOW = 0.5  # share of keys seen; reading scattered rows costs about twice reading all in order
CHUNK_BYTES = 2**20  # of gathered rows at once on the CPU, so that they are still in its cache when used


def decode_pays(length_q: int, length_k: int, window: int) -> bool:
    """Whether gathering can beat the masked path, before a look at the groups."""
    return length_q <= MAX_QUERIES and length_q < length_k >= GATHER_FROM and window < GATHER_BELOW * length_k


def decode_attention(
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
    gather_below: float = GATHER_BELOW,
) -> tuple[Tensor, Tensor]:
    """Focus attention over gathered keys. Shapes as in `focus_attention`; meant for Tq up to `MAX_QUERIES`.

    Args:
        gather_below: when a batch row's queries see more than this share of the keys between them, all its keys are
            read under a mask instead.

    Returns:
        out (B, Hq, Tq, D), zero where a query has no key; logsumexp (B, Hq, Tq), -inf there.
    """
    length_q, length_k = query.shape[2], key.shape[2]
    outs, lses = [], []
    for b in range(query.shape[0]):
        row = slice(b, b + 1)
        padding = None if key_padding is None else key_padding[row]
        position = token_positions(membership[row], padding)[0]
        allowed = allowed_pairs(
            membership[b, length_k - length_q :], membership[b], position[length_k - length_q :], position,
            window, num_sinks,
        )  # fmt: skip
        if padding is not None:
            allowed = allowed & padding
        rows = allowed.any(dim=0).nonzero()[:, 0]
        if rows.numel() > gather_below * length_k:
            out, lse = masked_attention(
                query[row], key[row], value[row], membership[row],
                window=window, num_sinks=num_sinks, key_padding=padding, scale=scale, softcap=softcap,
            )  # fmt: skip
        else:
            out, lse = _attend_rows(query[b], key[b], value[b], rows, allowed[:, rows], scale, softcap)
            out, lse = out[None], lse[None]
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs), torch.cat(lses)


def _attend_rows(
    query: Tensor, key: Tensor, value: Tensor, rows: Tensor, allowed: Tensor, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Attention of one text's queries over some of its keys, in fp32 at least.

    Args:
        query: (Hq, Tq, D); key, value: (Hkv, Tk, D); rows: (n,) key numbers; allowed: (Tq, n) bool.

    Returns:
        out (Hq, Tq, D), logsumexp (Hq, Tq).
    """
    heads, length_q, dim = query.shape
    kind = torch.promote_types(query.dtype, torch.float32)
    if rows.numel() == 0:
        return torch.zeros_like(query), query.new_full((heads, length_q), float("-inf"), dtype=kind)
    folded = query.reshape(key.shape[0], -1, dim).to(kind) * scale  # the query heads of one key head, side by side
    chunks = rows.split(_chunk_rows(key))
    scores = torch.cat([folded @ key.index_select(1, part).to(kind).transpose(1, 2) for part in chunks], dim=-1)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if length_q > 1:  # of a single query every gathered key is allowed
        scores = scores.masked_fill(~allowed.repeat(folded.shape[1] // length_q, 1), float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0.0)[..., None])
    out = torch.zeros_like(folded)
    for part, weight in zip(chunks, weights.split([c.numel() for c in chunks], dim=-1), strict=True):
        out = out + weight @ value.index_select(1, part).to(kind)
    return out.to(query.dtype).view_as(query), lse.view(heads, length_q)


def _chunk_rows(key: Tensor) -> int:
    if key.device.type != "cpu":
        return key.shape[1]
    return max(64, CHUNK_BYTES // (key.shape[0] * key.shape[2] * key.element_size()))
