"""Calls of torch's flash kernels that return logsumexp, with the hazards of the CPU's handled in one place; those of
CUDA's kernels are in kernels/cuda.py.

Hazards: length 0 ends the process, a fully masked row reports logsumexp 0, and the mask must have the query's dtype.
Shapes: B batch, Hq and Hkv heads, Tq queries, Tk keys, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.kernels import cuda
from focus_runtime.gpu.usable import HALVES

_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def _on_cuda(query: Tensor) -> bool:
    return query.device.type == "cuda"


def causal_flash(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Causal attention of equally long query and key.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D); T at least 1.
        scale: factor on the scores.

    Returns:
        out (B, Hq, T, D), logsumexp (B, Hq, T) in fp32 (fp64 for fp64 inputs).
    """
    assert query.shape[2] == key.shape[2] > 0
    if _on_cuda(query):
        return cuda.causal(query, key, value, scale)
    out, lse = _kernel(query, key, value, 0.0, True, scale=scale)
    return out, lse


def causal_sdpa(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Causal attention of equally long query and key by the kernel torch chooses for the device; no logsumexp.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        scale: factor on the scores.

    Returns:
        (B, Hq, T, D).
    """
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
    """Attention over the allowed pairs.

    Args:
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D); allowed: (B or 1, 1, Tq, Tk) bool.
        scale: factor on the scores.
        causal: no pair above the diagonal is allowed, so the kernel may leave them out; then Tq = Tk.
        empty_rows: False when every query is known to have a key, which saves a pass over the mask.

    Returns:
        out (B, Hq, Tq, D), zero where a query has no key; logsumexp (B, Hq, Tq), -inf there.
    """
    assert min(query.shape[2], key.shape[2]) > 0
    if _on_cuda(query):
        out, lse = cuda.masked(query, key, value, allowed, scale)
    else:
        bias = torch.where(allowed, 0.0, float("-inf")).to(query.dtype)
        out, lse = _kernel(query, key, value, 0.0, causal, attn_mask=bias, scale=scale)
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
        grad, query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D).
        out, lse: of the whole softmax, not of this set: (B, Hq, Tq, D) and (B, Hq, Tq), finite.
        scale: factor on the scores.
        allowed: (B or 1, 1, Tq, Tk) bool, the pairs of this set; causal when None.

    Returns:
        gradients of query, key and value.
    """
    assert min(query.shape[2], key.shape[2]) > 0
    if _on_cuda(query):
        return cuda.backward(grad, query, key, value, out, lse, scale, allowed)
    bias = None if allowed is None else torch.where(allowed, 0.0, float("-inf")).to(query.dtype)
    return _backward(grad, query, key, value, out, lse, 0.0, allowed is None, attn_mask=bias, scale=scale)
