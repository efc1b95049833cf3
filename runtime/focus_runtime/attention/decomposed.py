"""Exact k = 1 Focus as same-group causal attention, cross-group local attention and cross-group sinks, merged.

The three sets are disjoint and cover the mask (METHOD section 4, sinks added). Same-group: a stable sort by group keeps
causal order, so every group is an ordinary causal sequence for a flash call, O(T^2 / K). Local: short blocks of
queries against the keys in reach of them, O(T w). Sinks: s keys a query, O(T s). Memory is linear in T.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.flash import causal_flash, masked_flash

LOCAL_BLOCK = 64  # queries per local block; 32 to 256 were timed at w = 128, see LOG.md


def merge(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Combine attention over disjoint key sets by their logsumexps, per query and head (METHOD section 4).

    Args:
        parts: (out (..., T, D), logsumexp (..., T)) pairs; -inf marks a query without keys in that set.
    """
    lses = torch.stack([lse for _, lse in parts])
    top = lses.amax(dim=0)
    weights = torch.exp(lses - top.masked_fill(top == float("-inf"), 0.0))
    total = weights.sum(dim=0)
    weights = weights / total.clamp_min(torch.finfo(total.dtype).tiny)
    out = parts[0][0] * weights[0][..., None].to(parts[0][0].dtype)
    for (part, _), weight in zip(parts[1:], weights[1:], strict=True):
        out = torch.addcmul(out, part, weight[..., None].to(part.dtype))
    return out, top + torch.log(total)


def _same_group(query: Tensor, key: Tensor, value: Tensor, group: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    order = torch.argsort(group, stable=True)
    sorted_q, sorted_k, sorted_v = (x.index_select(2, order) for x in (query, key, value))
    out = torch.empty_like(query)
    lse = query.new_empty(query.shape[:3], dtype=torch.promote_types(query.dtype, torch.float32))
    start = 0
    for size in torch.unique_consecutive(group[order], return_counts=True)[1].tolist():
        part = slice(start, start + size)
        rows = order[part]
        out_g, lse_g = causal_flash(sorted_q[:, :, part], sorted_k[:, :, part], sorted_v[:, :, part], scale)
        out.index_copy_(2, rows, out_g.to(out.dtype))
        lse.index_copy_(2, rows, lse_g.to(lse.dtype))
        start += size
    return out, lse


def _windows(x: Tensor, block: int, num_blocks: int, back: int) -> Tensor:
    """Overlapping key blocks as a view: (H, T', D) with `back` rows of left padding -> (N, H, back + block, D)."""
    heads, _, dim = x.shape
    stride_h, stride_t, stride_d = x.stride()
    shape = (num_blocks, heads, back + block, dim)
    return x.as_strided(shape, (block * stride_t, stride_h, stride_t, stride_d))


def _cross_group_local(
    query: Tensor, key: Tensor, value: Tensor, group: Tensor, window: int, scale: float
) -> tuple[Tensor, Tensor]:
    heads, length, dim = query.shape[1:]
    block = LOCAL_BLOCK
    num_blocks = -(-length // block)
    tail = num_blocks * block - length
    pad = torch.nn.functional.pad
    key_p, value_p = (pad(x[0], (0, 0, window, tail)) for x in (key, value))
    group_k = pad(group, (window, tail), value=-1).unfold(0, window + block, block)
    group_q = pad(group, (0, tail), value=-2).view(num_blocks, block)
    row = torch.arange(block)[:, None] + window
    column = torch.arange(window + block)[None, :]
    near = (column <= row) & (row - column <= window)
    allowed = near & (group_k[:, None, :] >= 0) & (group_q[:, :, None] != group_k[:, None, :])
    blocks_q = pad(query[0], (0, 0, 0, tail)).view(heads, num_blocks, block, dim).transpose(0, 1)
    blocks_k, blocks_v = (_windows(x, block, num_blocks, window) for x in (key_p, value_p))
    out, lse = masked_flash(blocks_q, blocks_k, blocks_v, allowed[:, None], scale)
    out = out.transpose(0, 1).reshape(1, heads, num_blocks * block, dim)[:, :, :length]
    lse = lse.transpose(0, 1).reshape(1, heads, num_blocks * block)[:, :, :length]
    return out, lse


def _cross_group_sinks(
    query: Tensor, key: Tensor, value: Tensor, group: Tensor, window: int, num_sinks: int, scale: float
) -> tuple[Tensor, Tensor]:
    repeats = query.shape[1] // key.shape[1]
    key_s, value_s = (x[:, :, :num_sinks].repeat_interleave(repeats, dim=1) for x in (key, value))
    scores = (query @ key_s.transpose(-1, -2)).to(torch.promote_types(query.dtype, torch.float32)) * scale
    position = torch.arange(query.shape[2])
    far = position[:, None] - position[None, : key_s.shape[2]] > window
    scores = scores.masked_fill(~(far & (group[:, None] != group[None, : key_s.shape[2]])), float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0.0)[..., None])
    return weights.to(query.dtype) @ value_s, lse


def single_group(membership: Tensor) -> bool:
    """True when every token belongs to exactly one group."""
    return bool(((membership > 0) & ((membership & (membership - 1)) == 0)).all())


def decomposed_attention(
    query: Tensor, key: Tensor, value: Tensor, membership: Tensor, *, window: int, num_sinks: int = 0, scale: float
) -> tuple[Tensor, Tensor]:
    """Exact Focus attention for k = 1 on the CPU. Shapes as in `focus_attention`, with Tq = Tk and no padding."""
    window = min(
        window, query.shape[2] - 1
    )  # local blocks reach back a whole window, so a longer one only costs memory
    outs, lses = [], []
    for b in range(query.shape[0]):
        q, k, v, group = query[b : b + 1], key[b : b + 1], value[b : b + 1], membership[b]
        parts = [_same_group(q, k, v, group, scale)]
        if window > 0:
            parts.append(_cross_group_local(q, k, v, group, window, scale))
        if num_sinks > 0:
            parts.append(_cross_group_sinks(q, k, v, group, window, num_sinks, scale))
        out, lse = merge(parts)
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs), torch.cat(lses)
