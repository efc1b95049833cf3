"""focus_attention(): the one public attention op, with an explicit backend."""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.checks import check_arguments, check_finite, check_numbers, needs_gradient
from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.cuda.packing import membership_extent
from focus_runtime.attention.dispatch import attend, choose_backend, rows_together
from focus_runtime.attention.scoring import Scoring
from focus_runtime.config import BACKENDS, CONSTANT
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import PairRule

__all__ = ["BACKENDS", "choose_backend", "focus_attention"]


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
    check_arguments(query, key, value, membership, key_padding, window, num_sinks, window_growth)
    check_numbers(scale, softcap)
    if backend not in BACKENDS:
        raise InputError(f"backend is {backend!r}", expected="one of " + ", ".join(BACKENDS))
    query, key, value = rows_together(query, key, value)
    rule = PairRule(
        window, num_sinks, growth=CONSTANT if window_growth is None else (window_growth[0], window_growth[1])
    )
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
            window_growth=rule.growth,
            key_padding=key_padding,
            softcap=softcap,
            gradient=needs_gradient(query, key, value),
            value=value,
            extent=extent,
        )
    out, lse = attend(
        query,
        key,
        value,
        membership,
        rule,
        Scoring(query.shape[-1] ** -0.5 if scale is None else scale, softcap),
        key_padding,
        backend=backend,
        return_lse=return_lse,
        clock=clock,
        extent=extent,
    )
    kernels = backend in ("masked", "decomposed") and query.device.type == "cpu"  # they turn rows of NaN into zeros
    if not _is_finite(out, lse) or (kernels and not _is_finite(query.sum() + key.sum(), None)):
        check_finite(query, key, value)
    if not return_lse:
        return out
    assert lse is not None
    return out, lse.to(torch.promote_types(lse.dtype, torch.float32))


def _is_finite(out: Tensor, lse: Tensor | None) -> bool:
    """False after NaN or infinite inputs; two sums, so that nothing as large as the output is written for it."""
    return bool(torch.isfinite(out.sum())) and not (lse is not None and bool(torch.isnan(lse).any()))
