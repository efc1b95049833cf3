"""The causal rule on a GPU in one Triton kernel: scores, probabilities and groups from hidden states read once.

Shape suffixes: t tokens of a tile, e model width, k groups.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from focus_runtime.gpu.launch import aligned, alike
from focus_runtime.routing.route_kernel import route_kernel

FEWEST_COLUMNS = 16  # of a matrix product
TOKENS, WIDTH = 32, 128  # of a tile
WARPS, STAGES = 4, 3


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
