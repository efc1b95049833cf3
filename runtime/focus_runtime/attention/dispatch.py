"""Which backend computes a call, and the call itself. Arguments are expected to be checked; see `focus_attention`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention.clock import StageClock, unmeasured
from focus_runtime.attention.costs import FROM_TOKENS, cheapest, machine_costs
from focus_runtime.attention.decode import MAX_QUERIES, decode_attention
from focus_runtime.attention.decomposed import decomposed_attention, gpu_decomposition, grouped_fits
from focus_runtime.attention.decomposed_backward import differentiable_attention
from focus_runtime.attention.flash import causal_sdpa, has_backward
from focus_runtime.attention.fused import fused_attention, fused_runs
from focus_runtime.attention.masked import covers_everything, masked_attention
from focus_runtime.attention.reference import Scoring, needs_gradient, reference_attention
from focus_runtime.config import CONSTANT
from focus_runtime.errors import InputError
from focus_runtime.mask.allowed_pairs import membership_extent
from focus_runtime.mask.rule import Extent, PairRule

COMPILE_FROM = 2048  # tokens; below, compiling flex takes more time than it saves
SMALLEST_FLEX_HEAD = 16  # Triton's least matrix side
FUSED_ALWAYS = 0.8  # of torch's time for a pair: below, no torch kernel computes the same pairs faster


def choose_backend(
    query: Tensor,
    key: Tensor,
    membership: Tensor,
    *,
    window: int,
    num_sinks: int = 0,
    window_growth: tuple[int, int] = CONSTANT,
    key_padding: Tensor | None = None,
    softcap: float | None = None,
    gradient: bool = False,
    value: Tensor | None = None,
    extent: Extent | None = None,
) -> str:
    """The backend that `backend="auto"` runs; see docs/backends.md for the reasons and the measurements.

    Only shapes, dtypes and strides of query, key and value are looked at.

    Args:
        gradient: consider only backends that have a backward pass.
        value: taken to be like key when None.
    """
    rule = PairRule(window, num_sinks, growth=window_growth)
    plain = query.device.type == "cpu" and query.shape[2] >= FROM_TOKENS and _is_plain(query, key, key_padding, softcap)
    fused = not gradient and fused_runs(query, key, key if value is None else value)
    if fused and not (plain and machine_costs(query.dtype).fused > FUSED_ALWAYS):
        return "fused"
    if query.shape[2] <= MAX_QUERIES and query.shape[2] < key.shape[2]:
        return "decode"
    if query.device.type == "cuda" and extent is None:
        extent = membership_extent(membership)
    if covers_everything(membership, window, key.shape[2], extent):
        return "masked"
    if query.device.type == "cuda":
        assert extent is not None
        longest = rule.near(key.shape[2] - 1)
        return choose_on_gpu(
            query, key, extent, window=longest, key_padding=key_padding, softcap=softcap, gradient=gradient
        )
    if not plain:
        return "masked"
    return cheapest(membership, rule, machine_costs(query.dtype), fused=fused)


def choose_on_gpu(
    query: Tensor,
    key: Tensor,
    extent: Extent,
    *,
    window: int,
    key_padding: Tensor | None,
    softcap: float | None,
    gradient: bool,
) -> str:
    """The backend for Focus that is not full attention, with windows of at most `window`."""
    length = key.shape[2]
    whole = query.shape[2] == length and key_padding is None
    if whole and not gradient and grouped_fits(query, key, key, window, Scoring(1.0, softcap)):
        return "decomposed"  # the Triton kernels: the fastest at every length, measured on an H200
    if length < COMPILE_FROM or query.shape[2] == 1:
        return "masked"
    if query.dtype != torch.float64 and query.shape[-1] >= SMALLEST_FLEX_HEAD:
        from focus_runtime.attention.flex import works  # loads torch's compiler, which takes a second

        if works(query.device, query.dtype, query.shape[-1], gradients=gradient):
            return "flex"
    linear = gradient and whole and softcap is None and 1 <= extent.top_k <= 2
    return "decomposed" if linear and has_backward(query) else "masked"  # the memory of masked grows with T^2


def fused_inside_window(requested: str, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the fused kernel computes Focus inside a layer's own sliding window; no other backend does."""
    plain = query.shape[2] == key.shape[2] and not needs_gradient(query, key, value)
    return requested in ("auto", "fused") and plain and fused_runs(query, key, value)


def grouped_on_gpu(
    requested: str, query: Tensor, key: Tensor, value: Tensor, window: int, scoring: Scoring, padding: Tensor | None
) -> bool:
    """Whether "decomposed" runs in the GPU kernels that also take a softcap and a layer's own sliding window."""
    plain = padding is None and query.shape[2] == key.shape[2] and not needs_gradient(query, key, value)
    return requested in ("auto", "decomposed") and plain and grouped_fits(query, key, value, window, scoring)


def rows_together(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The same tensors with a contiguous last dimension, which torch's CPU kernels require without checking."""
    return tuple(x if x.stride(-1) == 1 else x.contiguous() for x in tensors)


def one_dtype(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same tensors in one type, the value's outside autocast, which leaves rotated queries and keys in fp32."""
    if query.dtype == key.dtype == value.dtype:
        return query, key, value
    device = query.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else value.dtype
    return query.to(dtype), key.to(dtype), value.to(dtype)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    key_padding: Tensor | None = None,
    *,
    backend: str,
    return_lse: bool = True,
    clock: StageClock | None = None,
    extent: Extent | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Run one named backend, not "auto".

    Args:
        rule: window and sinks; for "fused", and "decomposed" where `grouped_on_gpu`, also a layer's own sliding window.
        return_lse: False lets a backend leave the logsumexp out.

    Returns:
        out (B, Hq, Tq, D); logsumexp (B, Hq, Tq), or None where it was left out.

    Raises:
        InputError: the backend cannot take these inputs.
    """
    gradient, stage = needs_gradient(query, key, value), clock or unmeasured
    assert (
        rule.sliding_window is None
        or backend == "fused"
        or grouped_on_gpu(backend, query, key, value, rule.near(key.shape[2] - 1), scoring, key_padding)
    ), "other backends do not leave out what is out of reach"
    inputs = (query, key, value, membership, rule)
    if backend == "fused":
        if gradient:
            raise _no_gradient(backend, query)
        return fused_attention(*inputs, scoring, key_padding, clock=clock)
    if backend == "flex":
        from focus_runtime.attention.flex import flex_focus_attention  # loads torch's compiler, which takes a second

        return flex_focus_attention(*inputs, scoring, key_padding, return_lse=return_lse, extent=extent)
    if backend == "decomposed":
        on_gpu = query.device.type != "cpu" and not gradient
        if not _is_plain(query, key, key_padding, None if on_gpu else scoring.softcap):
            raise InputError(
                "backend 'decomposed' does not fit these inputs",
                expected="as many queries as keys, no padding, no softcap",
                fix='use backend="auto"',
            )
        if gradient:
            if not has_backward(query):
                raise _no_gradient(backend, query)
            return differentiable_attention(*inputs, scoring.scale)
        if on_gpu:
            return gpu_decomposition(*inputs, scoring, stage=stage, extent=extent)
        return decomposed_attention(*inputs, scoring.scale, stage=stage)
    if backend == "decode" and query.shape[2] > MAX_QUERIES:  # it masks whole rows of pairs
        backend = "masked"
    if backend == "masked" and not return_lse and query.device.type != "cpu":
        plain = _is_plain(query, key, key_padding, scoring.softcap)
        if plain and covers_everything(membership, rule.window, key.shape[2], extent):
            return causal_sdpa(query, key, value, scoring.scale), None
    run: Any = {"reference": reference_attention, "masked": masked_attention, "decode": decode_attention}[backend]
    return run(*inputs, scoring, key_padding)


def _no_gradient(backend: str, query: Tensor) -> InputError:
    return InputError(
        f"backend {backend!r} cannot give gradients on {query.device.type}",
        expected="tensors that need no gradient",
        fix='use torch.no_grad(), or backend="auto"',
    )


def _is_plain(query: Tensor, key: Tensor, key_padding: Tensor | None, softcap: float | None) -> bool:
    """What the decompositions need: the whole text at once, no padding, no softcap."""
    return query.shape[2] == key.shape[2] and key_padding is None and softcap is None
