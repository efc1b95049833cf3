"""Exact Focus attention for a few queries over many keys: find the keys they may see, gather those rows, attend.

Finding them is one pass over the bit sets, 8 bytes a token; keys and values, hundreds of times larger, are read only
where a query may look. So a decode step costs what it attends to, not what came before. Any device, any k, padding and
softcap, with gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.checks import needs_gradient
from focus_runtime.attention.flash import masked_flash
from focus_runtime.attention.reference import attend, token_positions
from focus_runtime.mask.rule import allowed_pairs

MAX_QUERIES = 16  # more queries see most keys between them, whatever their groups
GATHER_FROM = 1280  # keys; below this reading all of them under the mask is faster, benchmarks/decode_cpu.py
GATHER_FROM_ACCELERATOR = 32768  # a guess, not measured: a gathered step there is bound by its kernel launches
GATHER_BELOW = 0.5  # share of keys seen; reading scattered rows costs about twice reading all in order
CHUNK_BYTES = 3 * 2**19  # of gathered rows at once on the CPU, so that they are still in its cache when used


def decode_pays(length_q: int, length_k: int) -> bool:
    """Whether these are the few queries over many keys that this path is made for."""
    return length_q <= MAX_QUERIES and length_q < length_k


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
    gather_from: int | None = None,
    gather_below: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention over gathered keys. Shapes as in `focus_attention`; meant for Tq up to `MAX_QUERIES`.

    Args:
        gather_from, gather_below: with fewer keys (None: see `_limits`), or when a batch row's queries see
            more than this share of them between them, all keys are read under a mask instead.

    Returns:
        out (B, Hq, Tq, D), zero where a query has no key; logsumexp (B, Hq, Tq), -inf there.
    """
    allowed = _allowed(membership, key_padding, query.shape[2], window, num_sinks)
    least, share = _limits(key)
    gather_from = least if gather_from is None else gather_from
    gather_below = share if gather_below is None else gather_below
    if key.shape[2] < gather_from:
        return _under_mask(query, key, value, allowed, scale, softcap)
    outs, lses = [], []
    for b in range(query.shape[0]):
        rows = (allowed[b, 0] if query.shape[2] == 1 else allowed[b].any(dim=0)).nonzero()[:, 0]
        if rows.numel() <= gather_below * key.shape[2]:
            out, lse = _attend_rows(query[b], key[b], value[b], rows, allowed[b][:, rows], scale, softcap)
            out, lse = out[None], lse[None]
        else:
            one = slice(b, b + 1)
            out, lse = _under_mask(query[one], key[one], value[one], allowed[one], scale, softcap)
        outs.append(out)
        lses.append(lse)
    return (outs[0], lses[0]) if len(outs) == 1 else (torch.cat(outs), torch.cat(lses))


def _limits(key: Tensor) -> tuple[int, float]:
    """Fewest keys and largest share of them for which gathering was measured to be faster."""
    if key.device.type != "cpu":
        return GATHER_FROM_ACCELERATOR, GATHER_BELOW
    if key.dtype in (torch.float16, torch.bfloat16):  # torch's CPU flash kernel is ten times slower in these
        return 0, 1.0
    return GATHER_FROM, GATHER_BELOW


def _allowed(membership: Tensor, padding: Tensor | None, length_q: int, window: int, num_sinks: int) -> Tensor:
    """(B, Tq, Tk) bool mask of the last queries."""
    first = membership.shape[1] - length_q
    if length_q > 1 or padding is not None:
        position = token_positions(membership, padding)
        allowed = allowed_pairs(membership[:, first:], membership, position[:, first:], position, window, num_sinks)
        return allowed if padding is None else allowed & padding[:, None]
    allowed = (membership & membership[:, -1:]) != 0  # the same in fewer passes, most of the time of a short step
    allowed[:, max(0, first - window) :] = True
    allowed[:, :num_sinks] = True
    return allowed[:, None]


def _under_mask(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    if query.device.type == "cpu" and softcap is None:
        return masked_flash(query, key, value, allowed[:, None], scale)
    return attend(query, key, value, allowed[:, None], scale, softcap)


def _attend_rows(
    query: Tensor, key: Tensor, value: Tensor, rows: Tensor, allowed: Tensor, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Attention of one text's queries over some of its keys, in fp32 at least.

    Args:
        query: (Hq, Tq, D); key, value: (Hkv, Tk, D); rows: (n,) numbers of the keys that any query sees.
        allowed: (Tq, n) bool, which of them each query sees.

    Returns:
        out (Hq, Tq, D), zero where a query has no key; logsumexp (Hq, Tq), -inf there.
    """
    heads, length_q, dim = query.shape
    kind = torch.promote_types(query.dtype, torch.float32)
    if rows.numel() == 0:
        return torch.zeros_like(query), query.new_full((heads, length_q), float("-inf"), dtype=kind)
    folded = query.reshape(key.shape[0], -1, dim).to(kind) * scale  # the query heads of one key head, side by side
    prefetch = key.device.type == "cpu" and not needs_gradient(key, value)
    gather = _gather_prefetched if prefetch else _gather
    chunks = rows.split(_chunk_rows(key) if prefetch else len(rows))
    parts = [folded @ gather(key, part).to(kind).transpose(1, 2) for part in chunks]
    scores = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if length_q > 1:  # of a single query every gathered key is allowed
        scores = scores.masked_fill(~allowed.repeat(folded.shape[1] // length_q, 1), float("-inf"))
    top = scores.amax(dim=-1, keepdim=True)
    top = top.masked_fill(top == float("-inf"), 0.0)
    weights = torch.exp(scores - top)
    total = weights.sum(dim=-1, keepdim=True)
    lse = (top + torch.log(total)).view(heads, length_q)
    weights = weights / total.clamp_min(torch.finfo(kind).tiny)
    if prefetch and folded.shape[1] == 1:
        out = _weighted_sum(value, rows, weights[:, 0])[:, None]
    else:
        out = torch.zeros_like(folded)
        for part, weight in zip(chunks, weights.split([len(c) for c in chunks], dim=-1), strict=True):
            out = out + weight @ gather(value, part).to(kind)
    return out.to(query.dtype).reshape(query.shape), lse


def _chunk_rows(key: Tensor) -> int:
    return max(64, CHUNK_BYTES // (key.shape[0] * key.shape[2] * key.element_size()))


def _gather(x: Tensor, rows: Tensor) -> Tensor:
    """(H, T, D) -> (H, n, D)."""
    return x.index_select(1, rows)


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


def _gather_prefetched(x: Tensor, rows: Tensor) -> Tensor:
    """As `_gather`, by bags of one row each: that kernel prefetches, and scattered rows are all about latency."""
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
