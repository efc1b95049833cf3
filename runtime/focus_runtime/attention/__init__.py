"""focus_attention(): the one public attention op, with an explicit backend; and what every backend is given.

In this folder, where nothing else is said, tensors are those of `focus_attention` (H and G in shape suffixes stand for
Hq and Hkv), and:
    rule, scoring   window and sinks, a `PairRule`; scale and softcap, a `Scoring`
    extent          what the host knows of the memberships; where None it looks, and waits for a GPU
    clock, stage    add up the seconds of "sort", "gather", "local", "same_group", "sinks", "merge"
    out, lse        (B, Hq, Tq, D) in the query's dtype, 0 where a query has no key; logsumexp (B, Hq, Tq) in fp32
                    (fp64 for fp64 inputs), -inf there
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.dispatch import attend, choose_backend, rows_together
from focus_runtime.attention.reference import Scoring, needs_gradient
from focus_runtime.config import BACKENDS, CONSTANT, GROWTH, is_growth
from focus_runtime.errors import InputError
from focus_runtime.mask.allowed_pairs import membership_extent
from focus_runtime.mask.rule import PairRule

__all__ = ["BACKENDS", "choose_backend", "focus_attention"]
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def focus_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    *,
    window: int,
    num_sinks: int = 0,
    window_growth: tuple[int, int] | None = None,
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
        window_growth: positions i from which to which the window grows, w * clamp(i, first, last) // first; not when
            None.
        key_padding: (B, Tk) bool, True for real tokens; positions count from the first real one.
        scale: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap).
        backend: one of `BACKENDS`; "auto" takes the fastest exact one (see `choose_backend`).
        return_lse: also return the logsumexp.
        clock: adds up the seconds of each stage, where the backend has stages.

    Returns:
        (B, Hq, Tq, D), and logsumexp (B, Hq, Tq) fp32 (fp64 for fp64 inputs) with `return_lse`.

    Raises:
        InputError: shapes, dtypes, devices or settings that do not fit, or values that are not finite.
    """
    _check_tensors(query, key, value, membership, key_padding)
    _check_numbers(window, num_sinks, window_growth, scale, softcap)
    if backend not in BACKENDS:
        raise InputError(f"backend is {backend!r}", expected="one of " + ", ".join(BACKENDS))
    query, key, value = rows_together(query, key, value)
    growth = CONSTANT if window_growth is None else (window_growth[0], window_growth[1])
    rule = PairRule(window, num_sinks, growth=growth)
    scoring = Scoring(query.shape[-1] ** -0.5 if scale is None else scale, softcap)
    extent = None
    if backend == "auto":
        if query.device.type == "cuda" and query.shape[2] == key.shape[2]:
            extent = membership_extent(membership)  # looked up once, for the choice and for what is chosen
        backend = choose_backend(
            query,
            key,
            membership,
            window=window,
            num_sinks=num_sinks,
            window_growth=growth,
            key_padding=key_padding,
            softcap=softcap,
            gradient=needs_gradient(query, key, value),
            value=value,
            extent=extent,
        )
    inputs = (query, key, value, membership, rule, scoring, key_padding)
    out, lse = attend(*inputs, backend=backend, return_lse=return_lse, clock=clock, extent=extent)
    kernels = backend in ("masked", "decomposed") and query.device.type == "cpu"  # they turn rows of NaN into zeros
    if not _is_finite(out, lse) or (kernels and not _is_finite(query.sum() + key.sum(), None)):
        _check_finite(query, key, value)
    if not return_lse:
        return out
    assert lse is not None
    return out, lse.to(torch.promote_types(lse.dtype, torch.float32))


def _is_finite(out: Tensor, lse: Tensor | None) -> bool:
    """False after NaN or infinite inputs; two sums, so that nothing as large as the output is written for it."""
    return bool(torch.isfinite(out.sum())) and not (lse is not None and bool(torch.isnan(lse).any()))


def _check_tensors(query: Tensor, key: Tensor, value: Tensor, membership: Tensor, key_padding: Tensor | None) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise InputError(f"{name} is {type(tensor).__name__}", expected="a tensor")
        if tensor.device.type == "meta":
            raise InputError(f"{name} is on the meta device, which holds no numbers", expected="a tensor with data")
        if tensor.dim() != 4:
            raise InputError(f"{name} has {tensor.dim()} dimensions", expected="4: (batch, heads, tokens, head size)")
        if tensor.dtype not in DTYPES:
            raise InputError(f"{name} is {tensor.dtype}", expected="float64, float32, bfloat16 or float16")
        if tensor.dtype != query.dtype or tensor.device != query.device:
            raise InputError(
                f"{name} is {tensor.dtype} on {tensor.device}", expected=f"{query.dtype} on {query.device} like query"
            )
    if key.shape != value.shape:
        raise InputError(f"value has shape {tuple(value.shape)}", expected=f"{tuple(key.shape)} like key")
    if query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3] or query.shape[2] > key.shape[2]:
        raise InputError(
            f"query has shape {tuple(query.shape)} and key {tuple(key.shape)}",
            expected="equal batch and head size, and no more queries than keys",
        )
    if key.shape[1] == 0 or query.shape[1] % key.shape[1]:
        raise InputError(f"query has {query.shape[1]} heads", expected=f"a multiple of key's {key.shape[1]}")
    if min(query.shape) == 0:
        raise InputError(f"query has shape {tuple(query.shape)}", expected="at least one of each: text, head, token")
    for name, per_token, dtype in (("membership", membership, torch.int64), ("key_padding", key_padding, torch.bool)):
        if per_token is not None:
            _check_per_token(name, per_token, dtype, key)
    least, most = torch.stack(torch.aminmax(membership)).tolist()
    if least < 0:
        raise InputError(f"membership holds {least}", expected="bit sets of groups 0 to 62, which are never negative")
    if most == 0:
        raise InputError("membership is all zero", expected="bit g set when the token belongs to group g")


def _check_per_token(name: str, tensor: Tensor, dtype: torch.dtype, key: Tensor) -> None:
    shape = (key.shape[0], key.shape[2])
    if not isinstance(tensor, Tensor):
        raise InputError(f"{name} is {type(tensor).__name__}", expected=f"a {dtype} tensor of shape {shape}")
    if tensor.dtype != dtype or tuple(tensor.shape) != shape or tensor.device != key.device:
        raise InputError(
            f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}",
            expected=f"{dtype} of shape {shape} on {key.device}",
        )


def _check_numbers(
    window: int, num_sinks: int, window_growth: tuple[int, int] | None, scale: float | None, softcap: float | None
) -> None:
    for name, number in (("window", window), ("num_sinks", num_sinks)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InputError(f"{name} is {number!r}", expected="a whole number, 0 or more")
    if window_growth is not None and not is_growth(window_growth):
        raise InputError(f"window_growth is {window_growth!r}", expected=GROWTH)
    if not (scale is None or _is_finite_number(scale)):
        raise InputError(f"scale is {scale!r}", expected="a finite number, or None")
    if not (softcap is None or (_is_finite_number(softcap) and softcap > 0)):
        raise InputError(f"softcap is {softcap!r}", expected="a finite number above 0, or None")


def _is_finite_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_finite(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Name the argument that holds NaN or infinity; called only after a result turned out not to be finite."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise InputError(
                f"{name} holds {bad:,} values that are NaN or infinite",
                expected="finite numbers",
                fix="look for an overflow in the layers before this one",
            )
