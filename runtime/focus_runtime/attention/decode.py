"""Exact Focus attention for a few queries over many keys: find the keys they may see, gather those rows, attend.

Finding them is one pass over the bit sets, 8 bytes a token; keys and values, hundreds of times larger, are read only
where a query may look. So a decode step costs what it attends to, not what came before. Any device, any k, padding and
softcap, with gradients.
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
CHUNK_BYTES = 3 * 2**19  # of gathered rows at once on the CPU, so that they are still in its cache when used


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
    gather_from: int = GATHER_FROM,
    gather_below: float = GATHER_BELOW,
) -> tuple[Tensor, Tensor]:
    """Focus attention over gathered keys. Shapes as in `focus_attention`; meant for Tq up to `MAX_QUERIES`.

    Args:
        gather_from, gather_below: with fewer keys, or when a batch row's queries see more than this share of them
            between them, all its keys are read under a mask instead.

    Returns:
        out (B, Hq, Tq, D), zero where a query has no key; logsumexp (B, Hq, Tq), -inf there.
    """
    length_q, length_k = query.shape[2], key.shape[2]
    outs, lses = [], []
    for b in range(query.shape[0]):
        row = slice(b, b + 1)
        padding = None if key_padding is None else key_padding[row]
        allowed = _allowed(membership[row], padding, length_q, window, num_sinks)
        rows = None
        if length_k >= gather_from:
            rows = (allowed[0] if length_q == 1 else allowed.any(dim=0)).nonzero()[:, 0]
            if rows.numel() > gather_below * length_k:
                rows = None
        if rows is None and query.dtype in (torch.float16, torch.bfloat16):  # converting every key would cost more
            out, lse = masked_attention(
                query[row], key[row], value[row], membership[row],
                window=window, num_sinks=num_sinks, key_padding=padding, scale=scale, softcap=softcap,
            )  # fmt: skip
        else:
            out, lse = _attend_rows(query[b], key[b], value[b], rows, allowed, scale, softcap)
            out, lse = out[None], lse[None]
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs), torch.cat(lses)


def _allowed(membership: Tensor, padding: Tensor | None, length_q: int, window: int, num_sinks: int) -> Tensor:
    """(Tq, Tk) bool mask of one text's last queries, from (1, Tk) membership and padding."""
    first = membership.shape[1] - length_q
    if length_q > 1:
        position = token_positions(membership, padding)[0]
        allowed = allowed_pairs(
            membership[0, first:], membership[0], position[first:], position, window, num_sinks
        )  # fmt: skip
    else:  # the same in fewer passes, which is most of the time of a short step
        allowed = (membership & membership[:, -1:]) != 0
        allowed[:, max(0, first - window) :] = True
        start = 0 if padding is None else int(padding[0].to(torch.int8).argmax())
        allowed[:, start : start + num_sinks] = True
    return allowed if padding is None else allowed & padding


def _attend_rows(
    query: Tensor, key: Tensor, value: Tensor, rows: Tensor | None, allowed: Tensor, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Attention of one text's queries over some of its keys, in fp32 at least.

    Args:
        query: (Hq, Tq, D); key, value: (Hkv, Tk, D); allowed: (Tq, Tk) bool.
        rows: (n,) numbers of the keys that any query sees; None reads all keys.

    Returns:
        out (Hq, Tq, D), zero where a query has no key; logsumexp (Hq, Tq), -inf there.
    """
    heads, length_q, dim = query.shape
    kind = torch.promote_types(query.dtype, torch.float32)
    if rows is not None and rows.numel() == 0:
        return torch.zeros_like(query), query.new_full((heads, length_q), float("-inf"), dtype=kind)
    folded = query.reshape(key.shape[0], -1, dim).to(kind) * scale  # the query heads of one key head, side by side
    needs_gradient = torch.is_grad_enabled() and (key.requires_grad or value.requires_grad)
    prefetch = rows is not None and key.device.type == "cpu" and not needs_gradient
    gather = _gather_prefetched if prefetch else _gather
    chunks = [rows] if rows is None or not prefetch else list(rows.split(_chunk_rows(key)))
    parts = [folded @ gather(key, part).to(kind).transpose(1, 2) for part in chunks]
    scores = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if rows is None or length_q > 1:  # of a single query every gathered key is allowed
        seen = allowed if rows is None else allowed[:, rows]
        scores = scores.masked_fill(~seen.repeat(folded.shape[1] // length_q, 1), float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0.0)[..., None])
    if prefetch and rows is not None and folded.shape[1] == 1:
        out = _weighted_sum(value, rows, weights[:, 0])[:, None]
    else:
        each = weights.split([part.shape[2] for part in parts], dim=-1)
        out = sum(w @ gather(value, part).to(kind) for part, w in zip(chunks, each, strict=True))
    return out.to(query.dtype).reshape(query.shape), lse.view(heads, length_q)


def _chunk_rows(key: Tensor) -> int:
    return max(64, CHUNK_BYTES // (key.shape[0] * key.shape[2] * key.element_size()))


def _gather(x: Tensor, rows: Tensor | None) -> Tensor:
    """(H, T, D) -> (H, n, D)."""
    return x if rows is None else x.index_select(1, rows)


def _flat(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(H, T, D) as a table (N, D) without copying where strides allow, and the (H, n) table rows of some tokens."""
    heads, length, dim = x.shape
    stride_h, stride_t, stride_d = x.stride()
    if stride_d != 1 or stride_h % dim or stride_t % dim:
        x = x.contiguous()
        stride_h, stride_t, _ = x.stride()
    stride_h, stride_t = stride_h // dim, stride_t // dim
    table = x.as_strided(((heads - 1) * stride_h + (length - 1) * stride_t + 1, dim), (dim, 1))
    return table, torch.arange(heads)[:, None] * stride_h + rows * stride_t


def _gather_prefetched(x: Tensor, rows: Tensor | None) -> Tensor:
    """As `_gather`, by bags of one row each: that kernel prefetches, and scattered rows are all about latency."""
    assert rows is not None
    table, flat = _flat(x, rows)
    out = torch.embedding_bag(table, flat.view(-1), torch.arange(flat.numel()))[0]
    return out.view(*flat.shape, x.shape[2])


def _weighted_sum(x: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """(H, T, D), (n,), (H, n) -> (H, D), without storing the gathered rows."""
    table, flat = _flat(x, rows)
    starts = torch.arange(flat.shape[0]) * flat.shape[1]
    return torch.embedding_bag(
        table, flat.view(-1), starts, mode=0, per_sample_weights=weights.to(x.dtype).reshape(-1)
    )[0]
