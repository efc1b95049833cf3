"""focus_attention(): the one public attention op, with an explicit backend."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention.backward import differentiable_attention
from focus_runtime.attention.checks import check_arguments, check_finite
from focus_runtime.attention.costs import cheapest_without_compiler
from focus_runtime.attention.cuda import flash_decomposition
from focus_runtime.attention.cuda_choice import choose_on_cuda
from focus_runtime.attention.decomposed import decomposed_attention
from focus_runtime.attention.fused import fused_attention, fused_available, fused_fits
from focus_runtime.attention.masked import covers_everything, masked_attention
from focus_runtime.attention.packed import membership_extent
from focus_runtime.attention.reference import reference_attention
from focus_runtime.clock import StageClock
from focus_runtime.errors import InputError

BACKENDS = ("auto", "reference", "masked", "decomposed", "fused", "flex")


def choose_backend(
    query: Tensor,
    key: Tensor,
    membership: Tensor,
    *,
    window: int,
    num_sinks: int = 0,
    key_padding: Tensor | None = None,
    softcap: float | None = None,
    gradient: bool = False,
) -> str:
    """The backend that `backend="auto"` runs; see docs/backends.md for the reasons and the measurements.

    Arguments as in `focus_attention`; only shapes, dtypes and strides of query and key are looked at. With `gradient`
    only backends that have a backward pass are considered.
    """
    if not gradient and fused_fits(query, key, key) and fused_available():
        return "fused"
    if covers_everything(membership, window, key.shape[2]):
        return "masked"
    if query.device.type == "cuda":
        extent = membership_extent(membership)
        return choose_on_cuda(
            query, key, extent, key_padding=key_padding, softcap=softcap, gradients=gradient
        )  # fmt: skip
    plain = query.shape[2] == key.shape[2] and key_padding is None and softcap is None
    if query.device.type != "cpu" or not plain:
        return "masked"
    return cheapest_without_compiler(membership, window=window, num_sinks=num_sinks)


def _needs_gradient(*tensors: Tensor) -> bool:
    """Autograd through a merge by logsumexp would be silently wrong: the kernel gives logsumexp no gradient."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def focus_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    *,
    window: int,
    num_sinks: int = 0,
    key_padding: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    backend: str = "auto",
    return_lse: bool = False,
    clock: StageClock | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Exact Focus attention: softmax over the pairs that share a group, are near, or look at a sink.

    Args:
        query: (B, Hq, Tq, D), the last Tq of the Tk positions.
        key, value: (B, Hkv, Tk, D), Hq a multiple of Hkv.
        membership: (B, Tk) int64, bit g set when the token belongs to group g.
        window: w, pairs with i - j <= w are allowed.
        num_sinks: s, keys j < s are allowed.
        key_padding: (B, Tk) bool, True for real tokens; positions count from the first real one.
        scale: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap).
        backend: one of `BACKENDS`; "auto" takes the fastest exact one (see `choose_backend`).
        return_lse: also return the logsumexp.
        clock: adds up the seconds of each stage, where the backend has stages.

    Returns:
        (B, Hq, Tq, D), and logsumexp (B, Hq, Tq) fp32 (fp64 for fp64 inputs) if asked.

    Raises:
        InputError: shapes, dtypes, devices or settings that do not fit, or values that are not finite.
    """
    check_arguments(query, key, value, membership, key_padding, window, num_sinks)
    if backend not in BACKENDS:
        raise InputError(f"backend is {backend!r}", expected="one of " + ", ".join(BACKENDS))
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks}
    settings["scale"] = query.shape[-1] ** -0.5 if scale is None else scale
    more: dict[str, Any] = {"key_padding": key_padding, "softcap": softcap}
    gradient = _needs_gradient(query, key, value)
    if backend == "auto":
        backend = choose_backend(query, key, membership, window=window, num_sinks=num_sinks, gradient=gradient, **more)
    if gradient and (backend == "fused" or (backend == "decomposed" and query.device.type != "cpu")):
        raise InputError(
            f"backend {backend!r} was asked for gradients, which it cannot give on {query.device.type}",
            expected="tensors that need no gradient",
            fix='use torch.no_grad(), or backend="auto"',
        )
    if backend == "decomposed":
        _check_plain(query, key, key_padding, softcap)
    lse: Tensor | None
    if backend == "fused":
        out, lse = fused_attention(query, key, value, membership, **settings, **more, clock=clock)
    elif backend == "flex":
        from focus_runtime.attention.flex import flex_focus_attention  # loads torch's compiler, which takes a second

        out, lse = flex_focus_attention(query, key, value, membership, **settings, **more, return_lse=return_lse)
    elif backend == "decomposed" and query.device.type != "cpu":
        out, lse = flash_decomposition(query, key, value, membership, **settings, stage=clock)
    elif backend == "decomposed" and gradient:
        out, lse = differentiable_attention(query, key, value, membership, **settings)
    elif backend == "decomposed":
        out, lse = decomposed_attention(query, key, value, membership, **settings, clock=clock)
    else:
        run: Any = reference_attention if backend == "reference" else masked_attention
        out, lse = run(query, key, value, membership, **settings, **more)
    if not _is_finite(out, lse):
        check_finite(query, key, value)
    if not return_lse:
        return out
    assert lse is not None
    return out, lse.to(torch.promote_types(lse.dtype, torch.float32))


def _is_finite(out: Tensor, lse: Tensor | None) -> bool:
    """False after NaN or infinite inputs; two sums, so that nothing as large as the output is written for it."""
    return bool(torch.isfinite(out.sum())) and not (lse is not None and bool(torch.isnan(lse).any()))


def _check_plain(query: Tensor, key: Tensor, key_padding: Tensor | None, softcap: float | None) -> None:
    if query.shape[2] != key.shape[2] or key_padding is not None or softcap is not None:
        raise InputError(
            "backend 'decomposed' does not fit these inputs",
            expected="as many queries as keys, no padding, no softcap",
            fix='use backend="auto"',
        )
