"""The causal rule for the few tokens of a decode step, by one compiled call."""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.native.library import library

MOST_TOKENS = 16  # more repay torch's calls
ELEMENTS = {torch.float32: 0, torch.bfloat16: 1}


def fits(hidden: Tensor) -> bool:
    """Whether `route_few_tokens` takes hidden states (B, T, E): few, on the CPU, without gradient; and is compiled."""
    return (
        hidden.shape[0] * hidden.shape[1] <= MOST_TOKENS
        and hidden.dtype in ELEMENTS
        and hidden.is_contiguous()
        and hidden.device.type == "cpu"
        and not torch.is_grad_enabled()
        and library()[0] is not None
    )


def route_few_tokens(hidden: Tensor, weights: Tensor, potential: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Probabilities and groups of tokens, as `CentroidRouter.own_assignment` defines them.

    Args:
        hidden: (B, T, E) float32 or bfloat16, contiguous.
        weights: (E, K) float32, contiguous: W_g C^T / tau.
        potential: (K,) float32.
        top_k: k.

    Returns:
        (B, T, K) float32, and (B, T) int64 bit sets.
    """
    batch, length, width = hidden.shape
    groups = weights.shape[1]
    probabilities = torch.empty(batch, length, groups, dtype=torch.float32)
    membership = torch.empty(batch, length, dtype=torch.int64)
    functions = library()[0]
    assert functions is not None
    failed = functions.focus_route_cpu(
        hidden.data_ptr(),
        weights.data_ptr(),
        potential.data_ptr(),
        probabilities.data_ptr(),
        membership.data_ptr(),
        ELEMENTS[hidden.dtype],
        batch * length,
        width,
        groups,
        top_k,
    )
    assert not failed, "a configuration has at most 63 groups"
    return probabilities, membership
