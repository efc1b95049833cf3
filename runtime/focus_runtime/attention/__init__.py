"""focus_attention(): the one public attention op, with an explicit backend."""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.decode import decode_attention, decode_pays
from focus_runtime.attention.decomposed import decomposed_attention, single_group
from focus_runtime.attention.masked import covers_everything, masked_attention
from focus_runtime.attention.reference import reference_attention
from focus_runtime.errors import InputError

BACKENDS = ("auto", "reference", "masked", "decomposed", "decode")
DECOMPOSED_FROM = 1536  # tokens from which the decomposition beats masked attention, benchmarks/attention_cpu.py


def choose_backend(
    query: Tensor, membership: Tensor, *, window: int, key_padding: Tensor | None = None, softcap: float | None = None
) -> str:
    """The backend that `backend="auto"` runs: gathering for decode steps, the decomposition for long k = 1 prefill
    on the CPU, else masked."""
    length = membership.shape[1]
    if decode_pays(query.shape[2], length):
        return "decode"
    eligible = query.device.type == "cpu" and query.shape[2] == length and key_padding is None and softcap is None
    if not eligible or length < DECOMPOSED_FROM or covers_everything(membership, window, length):
        return "masked"
    return "decomposed" if single_group(membership) else "masked"


def _needs_gradient(*tensors: Tensor) -> bool:
    """Autograd through a merge by logsumexp would be silently wrong: the kernel gives logsumexp no gradient."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    key_padding: Tensor | None,
    window: int,
    num_sinks: int,
) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4:
            raise InputError(f"{name} has {tensor.dim()} dimensions", expected="4: (batch, heads, tokens, head size)")
        if not tensor.is_floating_point():
            raise InputError(f"{name} is {tensor.dtype}", expected="a floating-point tensor")
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
    if query.shape[2] == 0:
        raise InputError("query has no tokens", expected="at least one token")
    for name, per_token, dtype in (("membership", membership, torch.int64), ("key_padding", key_padding, torch.bool)):
        if per_token is None:
            continue
        if (
            per_token.dtype != dtype
            or per_token.shape != (key.shape[0], key.shape[2])
            or per_token.device != key.device
        ):
            raise InputError(
                f"{name} is {per_token.dtype} of shape {tuple(per_token.shape)} on {per_token.device}",
                expected=f"{dtype} of shape {(key.shape[0], key.shape[2])} on {key.device}",
            )
    if window < 0:
        raise InputError(f"window is {window}", expected="0 or more")
    if num_sinks < 0:
        raise InputError(f"num_sinks is {num_sinks}", expected="0 or more")


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

    Returns:
        (B, Hq, Tq, D), and logsumexp (B, Hq, Tq) fp32 (fp64 for fp64 inputs) if asked.

    Raises:
        InputError: shapes, dtypes, devices or settings that do not fit.
    """
    _check(query, key, value, membership, key_padding, window, num_sinks)
    if backend not in BACKENDS:
        raise InputError(f"backend is {backend!r}", expected="one of " + ", ".join(BACKENDS))
    if backend == "auto":
        if _needs_gradient(query, key, value):
            backend = "masked"
        else:
            backend = choose_backend(query, membership, window=window, key_padding=key_padding, softcap=softcap)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    if backend == "decomposed":
        if _needs_gradient(query, key, value):
            raise InputError(
                "backend 'decomposed' was asked for gradients, which it cannot give",
                expected="tensors that need no gradient",
                fix='use torch.no_grad(), or backend="masked"',
            )
        plain = query.shape[2] == key.shape[2] and key_padding is None and softcap is None
        if not plain or query.device.type != "cpu" or not single_group(membership):
            raise InputError(
                "backend 'decomposed' does not fit these inputs",
                expected="CPU tensors, one group per token, as many queries as keys, no padding, no softcap",
                fix='use backend="auto"',
            )
        out, lse = decomposed_attention(query, key, value, membership, window=window, num_sinks=num_sinks, scale=factor)
    else:
        run = {"reference": reference_attention, "masked": masked_attention, "decode": decode_attention}[backend]
        out, lse = run(
            query, key, value, membership,
            window=window, num_sinks=num_sinks, key_padding=key_padding, scale=factor, softcap=softcap,
        )  # fmt: skip
    return (out, lse.to(torch.promote_types(lse.dtype, torch.float32))) if return_lse else out
