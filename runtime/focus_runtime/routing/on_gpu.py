"""What is decided from hidden states on a GPU, in one Triton kernel each: groups by the causal rule, and text sinks."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from focus_runtime.gpu.launch import aligned, alike
from focus_runtime.routing.route_kernel import alike_kernel, route_kernel

FEWEST_COLUMNS = 16  # of a matrix product
TOKENS, WIDTH = 32, 128  # of a tile
WARPS, STAGES = 4, 3
ALIKE_TOKENS, ALIKE_WIDTH, ALIKE_STAGES = 16, 128, 2


def route_on_gpu(hidden: Tensor, weights: Tensor, potential: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Probabilities and groups of tokens, as `CentroidRouter.own_assignment` defines them.

    Args:
        hidden: (B, T, E) in half or single precision, contiguous.
        weights: (E, K) float32: W_g C^T / tau.
        potential: (K,) float32.
        top_k: k.

    Returns:
        (B, T, K) float32, and (B, T) int64 bit sets.
    """
    batch, length, width = hidden.shape
    groups = weights.shape[1]
    probabilities = torch.empty(batch, length, groups, device=hidden.device)
    membership = torch.empty(batch, length, dtype=torch.int64, device=hidden.device)
    weights = weights.contiguous()
    tensors = (hidden, weights, potential, probabilities, membership)
    launches = alike("routing", hidden.device, hidden.dtype, width, groups, top_k, aligned(hidden, weights, potential))
    padded = max(FEWEST_COLUMNS, triton.next_power_of_2(groups))
    numbers = (batch * length, groups, top_k, width, padded, TOKENS, WIDTH)
    grid = (triton.cdiv(batch * length, TOKENS), 1, 1)
    launches.run("route", route_kernel, grid, (*tensors, *numbers), WARPS, STAGES)
    return probabilities, membership


def find_alike_on_gpu(
    hidden: Tensor,
    first: Tensor,
    known: Tensor,
    threshold: float,
    first_movable: int,
    padding: Tensor | None = None,
) -> Tensor:
    """Tokens whose hidden states resemble their text's first token's, and those known before.

    Args:
        hidden: (B, T, E) in half or single precision, contiguous.
        first: (B, E), contiguous, of the same type.
        known: (B, T) bool, contiguous.
        threshold: least cosine similarity.
        first_movable: number of the first of these tokens that may be found, in a text without padding.
        padding: (B,) int64, padding tokens before each text; None for none.

    Returns:
        (B, T) bool.
    """
    batch, length, width = hidden.shape
    found = torch.empty(batch, length, dtype=torch.bool, device=hidden.device)
    launches = alike("alike", hidden.device, hidden.dtype, width, padding is None, aligned(hidden, first, known))
    bits = known.view(torch.int8)
    tensors = (hidden, first, bits, bits if padding is None else padding, found.view(torch.int8))
    numbers = (length, float(threshold), first_movable, width, padding is not None, ALIKE_TOKENS, ALIKE_WIDTH)
    grid = (triton.cdiv(length, ALIKE_TOKENS), batch, 1)
    launches.run("alike", alike_kernel, grid, (*tensors, *numbers), WARPS, ALIKE_STAGES)
    return found
