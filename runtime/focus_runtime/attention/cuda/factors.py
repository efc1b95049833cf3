"""Queries multiplied by factors of their heads on a GPU, in one kernel in place of some eight operations a layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.attention.cuda.triton_kernels.factors import factors_kernel
from focus_runtime.config import CONSTANT
from focus_runtime.gpu.launch import aligned, alike, power_of_two, tiles_of

ROWS, FEW_ROWS = 64, 16  # of a tile, and where there are no more
WARPS = 4


@dataclass(frozen=True, slots=True, eq=False)
class HeadFactors:
    """What queries are multiplied by: factor ** max(0, acts - tokens * clamp(i, first, last) / first / n), where i is
    the query's position and n tokens are those up to it that its layer reaches.

    Attributes:
        factors, acts, tokens: (H,) float32, factors above 0.
        growth: first and last position of the windows' growth.
    """

    factors: Tensor
    acts: Tensor
    tokens: Tensor
    growth: tuple[int, int] = CONSTANT

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """In the order that kernels take them."""
        return self.factors, self.acts, self.tokens


def multiplied_on_gpu(query: Tensor, factors: HeadFactors, total: int, furthest: int | None = None) -> Tensor:
    """Queries times the factors of their heads.

    Args:
        query: (B, H, T, D) of the newest tokens, the last dimension contiguous.
        factors: of the heads.
        total: tokens of the text.
        furthest: the most that n can be; None for no limit.

    Returns:
        (B, H, T, D) of the same type, strided as (B, T, H, D).
    """
    batch, heads, new, head_size = query.shape
    out_BTHD = torch.empty(batch, new, heads, head_size, dtype=query.dtype, device=query.device)
    tile, size = ROWS if new > FEW_ROWS else FEW_ROWS, max(16, power_of_two(head_size))
    starts = aligned(query, *factors.tensors)
    launches = alike("factors", query.device, query.dtype, query.stride()[:3], head_size, tile, starts)
    numbers = (*query.stride()[:3], new, total - new, total if furthest is None else furthest, heads, *factors.growth)
    arguments = (query, out_BTHD, *factors.tensors, *numbers, head_size, size, tile)
    launches.run("factors", factors_kernel, (tiles_of(new, tile), heads, batch), arguments, WARPS, 1)
    return out_BTHD.transpose(1, 2)
