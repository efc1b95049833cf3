"""Flash attention over packed sequences with logsumexp: one small interface, and the kernels that provide it.

Tokens of several sequences lie one after another; `cu_lengths` says where each begins. Every kernel here is causal
inside each sequence. Hazards handled in this file: FlashAttention 2 reports +inf for a row without keys where -inf is
meant; head sizes must be multiples of 8; the last dimension must be contiguous.

Shape suffixes: n tokens of one sequence, H query heads (Hq), D head size.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from focus_runtime.errors import InputError, first_line
from focus_runtime.gpu import HALVES

PROBE_TOKENS = 16
SHORTEST_MAXIMUM = 2  # told 1, torch takes the call for a decode step and lays shared heads out for one query a text
LARGEST_HEAD = 256  # FlashAttention 2 and 3

_forward: Any = torch.ops.aten._flash_attention_forward
_backward: Any = torch.ops.aten._flash_attention_backward


class VarlenAttention(Protocol):
    """Causal attention inside each packed sequence."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_lengths: Tensor,
        max_length: int,
        scale: float,
        window: int | None,
    ) -> tuple[Tensor, Tensor]:
        """Run it.

        Args:
            query: (N, Hq, D); key, value: (N, Hkv, D).
            cu_lengths: (S + 1,) int32 on the same device, first token of each sequence, then the end of the last.
                Sequences may be empty. Tokens from the end on belong to none.
            max_length: at least the longest sequence; a larger number costs blocks that stop at once, no memory.
            window: keys with i - j <= window only; None for all.

        Returns:
            out (N, Hq, D), logsumexp (Hq, N) fp32. Both are undefined for tokens that belong to no sequence.
        """


@dataclass(frozen=True, slots=True)
class Kernel:
    """A varlen kernel with its name for reports."""

    name: str
    run: VarlenAttention


def _fitted(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zero columns up to a multiple of 8, which change no score, and a contiguous last dimension."""
    missing = -query.shape[-1] % 8
    if missing:
        query, key, value = (torch.nn.functional.pad(x, (0, missing)) for x in (query, key, value))
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    return query, key, value


def _finished(out: Tensor, lse: Tensor, head_size: int) -> tuple[Tensor, Tensor]:
    return out[..., :head_size], lse.masked_fill(lse == float("inf"), float("-inf"))


def torch_varlen(
    query: Tensor, key: Tensor, value: Tensor, cu_lengths: Tensor, max_length: int, scale: float, window: int | None
) -> tuple[Tensor, Tensor]:
    """Torch's own FlashAttention 2; the operator shares key heads itself, unlike `varlen_attn` in torch 2.11."""
    size = query.shape[-1]
    query, key, value = _fitted(query, key, value)
    max_length = max(max_length, SHORTEST_MAXIMUM)
    out, lse, *_ = _forward(
        query,
        key,
        value,
        cu_lengths,
        cu_lengths,
        max_length,
        max_length,
        0.0,
        True,
        False,
        scale=scale,
        window_size_left=window,
        window_size_right=None if window is None else 0,
    )
    return _finished(out, lse, size)


def torch_varlen_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_lengths: Tensor,
    max_length: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of causal attention inside each packed sequence, by torch's own FlashAttention 2.

    Args:
        grad, query, out: (N, Hq, D); key, value: (N, Hkv, D).
        lse: (Hq, N) fp32. Output and logsumexp may be those of a softmax over more keys than the sequence's.

    Returns:
        gradients of query, key and value; undefined for tokens that belong to no sequence.
    """
    size, kv_heads = query.shape[-1], key.shape[1]
    share = query.shape[1] // kv_heads
    if share > 1:  # the operator's own sum over shared heads has not been tested apart
        key, value = (x.repeat_interleave(share, 1) for x in (key, value))
    query, key, value = _fitted(query, key, value)
    grad, out, _ = _fitted(grad, out, out)
    state = torch.zeros(2, dtype=torch.uint64, device=query.device)  # of a dropout there is none of
    grads = _backward(
        grad,
        query,
        key,
        value,
        out,
        lse,
        cu_lengths,
        cu_lengths,
        max(max_length, SHORTEST_MAXIMUM),
        max(max_length, SHORTEST_MAXIMUM),
        0.0,
        True,
        state,
        state,
        scale=scale,
    )
    grad_query, grad_key, grad_value = (x[..., :size] for x in grads)
    if share > 1:
        grad_key, grad_value = (x.unflatten(1, (kv_heads, share)).sum(2) for x in (grad_key, grad_value))
    return grad_query, grad_key, grad_value


def _package_varlen(function: Any) -> VarlenAttention:
    """Wrap `flash_attn_varlen_func` of flash-attn 2 or 3, which name their arguments alike."""
    asks_for_lse = "return_attn_probs" in inspect.signature(function).parameters

    def run(
        query: Tensor, key: Tensor, value: Tensor, cu_lengths: Tensor, max_length: int, scale: float, window: int | None
    ) -> tuple[Tensor, Tensor]:
        size = query.shape[-1]
        query, key, value = _fitted(query, key, value)
        extra = {"return_attn_probs": True} if asks_for_lse else {}
        out, lse, *_ = function(
            query,
            key,
            value,
            cu_seqlens_q=cu_lengths,
            cu_seqlens_k=cu_lengths,
            max_seqlen_q=max_length,
            max_seqlen_k=max_length,
            softmax_scale=scale,
            causal=True,
            window_size=(-1, -1) if window is None else (window, 0),
            **extra,
        )
        return _finished(out, lse, size)

    return run


def _imported(module: str) -> Any | None:
    try:
        return importlib.import_module(module)
    except ImportError:  # not installed, or built for another torch
        return None


@functools.cache
def available_kernels(capability: tuple[int, int]) -> tuple[Kernel, ...]:
    """The kernels a GPU of this compute capability can run, fastest first."""
    if capability < (8, 0):
        return ()
    kernels = []
    if capability[0] == 9 and (package := _imported("flash_attn_interface")) is not None:
        kernels.append(Kernel("flash-attn 3", _package_varlen(package.flash_attn_varlen_func)))
    package = _imported("flash_attn")
    version = getattr(package, "__version__", "0").split(".")
    if version[0] == "2" and int(version[1]) >= 6:  # before 2.6 the logsumexp was padded per sequence
        kernels.append(Kernel(f"flash-attn {'.'.join(version)}", _package_varlen(package.flash_attn_varlen_func)))  # type: ignore[union-attr]
    kernels.append(Kernel(f"torch {torch.__version__} flash attention", torch_varlen))
    return tuple(kernels)


def unusable(device: torch.device, dtype: torch.dtype, head_size: int) -> str | None:
    """Why no flash kernel can run such inputs, or None when one can."""
    if device.type != "cuda" or torch.version.hip is not None:
        return f"tensors on {device.type}"
    if dtype not in HALVES:
        return f"{dtype} tensors"
    if head_size > LARGEST_HEAD:
        return f"head size {head_size}"
    kernels = available_kernels(torch.cuda.get_device_capability(device))
    if not kernels:
        return "a GPU older than compute capability 8.0"
    if not any(works(kernel, device, dtype, head_size) for kernel in kernels):
        return f"{dtype} tensors with head size {head_size}, for which every flash kernel here fails"
    return None


def best_kernel(device: torch.device, dtype: torch.dtype, head_size: int) -> Kernel:
    """The fastest kernel for such inputs."""
    reason = unusable(device, dtype, head_size)
    if reason is not None:
        raise InputError(
            f"backend 'decomposed' was given {reason}, which flash kernels cannot run",
            expected=f"float16 or bfloat16 on an NVIDIA GPU from Ampere on, head size at most {LARGEST_HEAD}",
            fix='use backend="flex" or backend="auto"',
        )
    kernels = available_kernels(torch.cuda.get_device_capability(device))
    return next(kernel for kernel in kernels if works(kernel, device, dtype, head_size))


@functools.cache
def works(kernel: Kernel, device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Whether a kernel gives finite numbers for such inputs; tried once, with a warning where it does not.

    A package may import and then fail: built for another GPU or another torch.
    """
    ones = torch.ones(PROBE_TOKENS, 1, head_size, device=device, dtype=dtype)
    bounds = torch.tensor([0, PROBE_TOKENS // 2, PROBE_TOKENS], device=device, dtype=torch.int32)
    try:
        out, lse = kernel.run(ones, ones, ones, bounds, PROBE_TOKENS, 1.0, 1)
        finite = bool(torch.isfinite(out).all()) and bool(torch.isfinite(lse).all())
        reason = "" if finite else "it gives numbers that are not finite"
    except Exception as error:  # packages raise exceptions of any type
        reason = first_line(error)
    if reason:
        warnings.warn(f"{kernel.name} is left out: {reason}", RuntimeWarning, stacklevel=2)
    return not reason


def plain_varlen(
    query: Tensor, key: Tensor, value: Tensor, cu_lengths: Tensor, max_length: int, scale: float, window: int | None
) -> tuple[Tensor, Tensor]:
    """The interface by its definition on any device, for tests and smoke runs: a loop, O(T^2), NaN where undefined."""
    kind = torch.promote_types(query.dtype, torch.float32)
    out = torch.full_like(query, float("nan"))
    lse = torch.full(query.shape[1::-1], float("nan"), dtype=kind, device=query.device)
    repeats = query.shape[1] // key.shape[1]
    bounds = cu_lengths.tolist()
    for start, stop in itertools.pairwise(bounds):
        assert 0 <= start <= stop <= query.shape[0]
        assert stop - start <= max_length
        q_HnD = query[start:stop].transpose(0, 1).to(kind)
        k_HnD, v_HnD = (x[start:stop].transpose(0, 1).to(kind).repeat_interleave(repeats, 0) for x in (key, value))
        place_n = torch.arange(stop - start, device=query.device)
        distance_nn = place_n[:, None] - place_n[None, :]
        hidden_nn = (distance_nn < 0) if window is None else (distance_nn < 0) | (distance_nn > window)
        scores_Hnn = (q_HnD @ k_HnD.transpose(1, 2) * scale).masked_fill(hidden_nn, float("-inf"))
        lse[:, start:stop] = torch.logsumexp(scores_Hnn, dim=-1)
        out[start:stop] = (torch.softmax(scores_Hnn, dim=-1) @ v_HnD).transpose(0, 1).to(out.dtype)
    return out, lse


PLAIN = Kernel("plain torch loop", plain_varlen)
