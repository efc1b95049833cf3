"""Calls of torch's flash kernels that return logsumexp, causal or masked, and their gradients; on the CPU and on CUDA.

Hazards met here, on the CPU: length 0 ends the process, a fully masked row reports logsumexp 0, and the mask must have
the query's dtype. On CUDA: head sizes and mask rows in multiples of 8, a padded logsumexp, as many key heads as query
heads where a kernel does not share them. There half precision runs in FlashAttention 2 where all causal pairs count,
masks and fp32 in memory-efficient attention.

Shape suffixes: B batch, H query heads (Hq), G key-value heads (Hkv), T tokens or b queries and t keys, D head size,
N = B * T.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from focus_runtime.gpu import HALVES, LARGEST_HEAD

ALIGNED = 8  # elements: head sizes and rows of a mask
LSE_ALIGNED = 32  # rows: memory-efficient attention pads its logsumexp to a multiple of them
LARGEST_BATCH = 65_535  # blocks of a grid in z, where memory-efficient attention has the batch
SHORTEST_MAXIMUM = 2  # told 1, torch takes the call for a decode step and lays shared heads out for one query a text
NO_MASK, CAUSAL = 0, 1

_cpu_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_cpu_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
_flash_forward: Any = torch.ops.aten._flash_attention_forward
_flash_backward: Any = torch.ops.aten._flash_attention_backward
_efficient_forward: Any = torch.ops.aten._efficient_attention_forward
_efficient_backward: Any = torch.ops.aten._efficient_attention_backward


def _on_cuda(query: Tensor) -> bool:
    return query.device.type == "cuda"


def causal_flash(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Causal attention of equally long query (B, Hq, T, D) and key (B, Hkv, T, D), T at least 1."""
    assert query.shape[2] == key.shape[2] > 0
    if not _on_cuda(query):
        out, lse = _cpu_forward(query, key, value, 0.0, True, scale=scale)
        return out, lse
    if not _flash_fits(query):
        return _efficient(query, key, value, None, scale)
    bounds, (q_NHD, k_NGD, v_NGD) = _packed(query, key, value)
    longest = max(query.shape[2], SHORTEST_MAXIMUM)
    out_NHD, lse_HN, *_ = _flash_forward(
        q_NHD, k_NGD, v_NGD, bounds, bounds, longest, longest, 0.0, True, False, scale=scale
    )
    return _unpacked(out_NHD, query), lse_HN.unflatten(1, (query.shape[0], -1)).transpose(0, 1)


def causal_sdpa(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Causal attention of equally long query and key by the kernel torch chooses for the device; no logsumexp."""
    shared = query.shape[1] != key.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scale, enable_gqa=shared
    )


def masked_flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor,
    scale: float,
    *,
    causal: bool = False,
    empty_rows: bool = True,
) -> tuple[Tensor, Tensor]:
    """Attention over the allowed pairs, (B or 1, 1, Tq, Tk) bool.

    Args:
        causal: no pair above the diagonal is allowed, so the kernel may leave them out; then Tq = Tk.
        empty_rows: False when every query is known to have a key, which saves a pass over the mask.
    """
    assert min(query.shape[2], key.shape[2]) > 0
    if _on_cuda(query):
        out, lse = _efficient(query, key, value, allowed, scale)
    else:
        out, lse = _cpu_forward(query, key, value, 0.0, causal, attn_mask=_cpu_bias(allowed, query), scale=scale)
    if not empty_rows:
        return out, lse
    empty = ~allowed.any(dim=-1)
    return out.masked_fill(empty[..., None], 0.0), lse.masked_fill(empty, float("-inf"))


def has_backward(query: Tensor) -> bool:
    """Whether `flash_backward` takes tensors of this device and dtype."""
    return query.device.type == "cpu" or (_on_cuda(query) and query.dtype in (*HALVES, torch.float32))


def flash_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    allowed: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of one key set's share of a softmax over several sets (see decomposed_backward.py).

    Args:
        out, lse: of the whole softmax, not of this set: (B, Hq, Tq, D) and (B, Hq, Tq), finite.
        allowed: (B or 1, 1, Tq, Tk) bool, the pairs of this set; causal when None.
    """
    assert min(query.shape[2], key.shape[2]) > 0
    if not _on_cuda(query):
        bias = None if allowed is None else _cpu_bias(allowed, query)
        return _cpu_backward(grad, query, key, value, out, lse, 0.0, allowed is None, attn_mask=bias, scale=scale)
    if allowed is None and _flash_fits(query):
        return _causal_backward(grad, query, key, value, out, lse, scale)
    assert query.shape[0] <= LARGEST_BATCH
    rows, size = query.shape[2:]
    grad_BbHD, q_BbHD, k_BtGD, v_BtGD, out_BbHD = _by_token(grad, query, key, value, out)
    bias_BGbt, kind = _bias(allowed, query, key)
    lse_BHb = torch.nn.functional.pad(lse.to(torch.float32), (0, -rows % LSE_ALIGNED), value=float("inf"))
    unused = torch.zeros((), dtype=torch.int64)  # state of a dropout there is none of
    grad_q_BbHD = torch.empty_like(q_BbHD)
    sums: list[Tensor] = []
    shares = query.shape[1] // key.shape[1]
    for share in range(shares):
        own = slice(share, None, shares)  # one query head for each key head
        # contiguous: of every r-th head, in half precision, it sums gradient times output wrongly
        grad, q, out = (x[:, :, own].contiguous() for x in (grad_BbHD, q_BbHD, out_BbHD))
        given = (grad, q, k_BtGD, v_BtGD, bias_BGbt, out, None, None)
        state = (rows, key.shape[2], lse_BHb[:, own].contiguous(), 0.0, unused, unused, kind, False)
        grad_q_BbHD[:, :, own], *grads, _ = _efficient_backward(*given, *state, scale=scale)
        sums = [total + more for total, more in zip(sums, grads, strict=True)] if sums else grads
    q_BHbD, k_BGtD, v_BGtD = (x[..., :size].transpose(1, 2) for x in (grad_q_BbHD, *sums))
    return q_BHbD, k_BGtD, v_BGtD


def _cpu_bias(allowed: Tensor, query: Tensor) -> Tensor:
    return torch.where(allowed, 0.0, float("-inf")).to(query.dtype)


def _flash_fits(query: Tensor) -> bool:
    return query.dtype in HALVES and query.shape[-1] <= LARGEST_HEAD


def _by_token(*tensors: Tensor) -> list[Tensor]:
    """(B, heads, T, D) -> (B, T, heads, D) with a contiguous last dimension, a multiple of `ALIGNED`."""
    missing = -tensors[0].shape[-1] % ALIGNED
    turned = [x.transpose(1, 2) for x in tensors]
    if missing:
        return [torch.nn.functional.pad(x, (0, missing)) for x in turned]
    return [x if x.stride(-1) == 1 else x.contiguous() for x in turned]


def _packed(*tensors: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Bounds of the texts, and tensors (B, heads, T, D) as (N, heads, D)."""
    batch, length = tensors[0].shape[0], tensors[0].shape[2]
    bounds = torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device=tensors[0].device)
    return bounds, [x.flatten(0, 1) for x in _by_token(*tensors)]


def _unpacked(x_NHD: Tensor, like: Tensor) -> Tensor:
    return x_NHD[..., : like.shape[-1]].unflatten(0, (like.shape[0], -1)).transpose(1, 2)


def _causal_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By FlashAttention 2, whose own sum over shared heads has not been tested apart."""
    share = query.shape[1] // key.shape[1]
    if share > 1:
        key, value = (x.repeat_interleave(share, 1) for x in (key, value))
    bounds, tensors = _packed(grad, query, key, value, out)
    lse_HN = lse.transpose(0, 1).flatten(1).contiguous()
    longest = max(query.shape[2], SHORTEST_MAXIMUM)
    unused = torch.zeros(2, dtype=torch.uint64, device=query.device)  # state of a dropout there is none of
    settings = (bounds, bounds, longest, longest, 0.0, True, unused, unused)
    grads = _flash_backward(*tensors, lse_HN, *settings, scale=scale)
    grad_query, grad_key, grad_value = (_unpacked(x, query) for x in grads)
    if share > 1:
        grad_key, grad_value = (x.unflatten(1, (-1, share)).sum(2) for x in (grad_key, grad_value))
    return grad_query, grad_key, grad_value


def _bias(allowed_B1bt: Tensor | None, query: Tensor, key: Tensor) -> tuple[Tensor | None, int]:
    """The mask as 0 or -inf for each pair, (B, G, b, t), rows at multiples of `ALIGNED`; and the kind of mask."""
    if allowed_B1bt is None:
        return None, CAUSAL
    rows, keys = allowed_B1bt.shape[2:]
    wide = query.new_empty(*allowed_B1bt.shape[:3], keys + -keys % ALIGNED)
    bias_B1bt = wide[..., :keys].zero_().masked_fill_(~allowed_B1bt, float("-inf"))
    return bias_B1bt.expand(query.shape[0], key.shape[1], rows, keys), NO_MASK


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention over the allowed pairs, causal when None; results of a query without keys are undefined."""
    assert query.shape[0] <= LARGEST_BATCH
    batch, heads, rows, size = query.shape
    q_BbHD, k_BtGD, v_BtGD = _by_token(query, key, value)
    bias_BGbt, kind = _bias(allowed, query, key)
    out_BbHD = torch.empty_like(q_BbHD)
    lse_BHb = torch.empty(batch, heads, rows, dtype=torch.float32, device=query.device)
    shares = heads // key.shape[1]
    for share in range(shares):
        own = slice(share, None, shares)  # one query head for each key head
        out, lse, *_ = _efficient_forward(
            q_BbHD[:, :, own], k_BtGD, v_BtGD, bias_BGbt, None, None, None, None, 0.0, kind, True, scale=scale
        )
        out_BbHD[:, :, own] = out
        lse_BHb[:, own] = lse[..., :rows]
    return out_BbHD[..., :size].transpose(1, 2), lse_BHb
