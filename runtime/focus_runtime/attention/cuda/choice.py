"""Which backend `auto` should take on CUDA. Estimates from operation counts: no GPU was at hand to measure them.

Replace the constants by what `make bench-gpu` measures. Per layer of 12 heads of 64 on an H100-class card, full
attention should take about 0.1 ms at 4K tokens. The decomposition makes 89 operations besides its kernels for k = 1 and
153 for k = 2 (counted), most of them launches of some microseconds each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.cuda.varlen import LARGEST_HEAD, unusable
from focus_runtime.mask.extent import Extent

COMPILE_FROM = 2048  # tokens; below, compiling flex takes more time than it saves
DECOMPOSED_FROM = {1: 8192, 2: 16384}  # tokens by k
WORTH = 0.7  # share of full attention's operations up to which the decomposition is taken
SMALLEST_FLEX_HEAD = 16  # Triton's least matrix side


def decomposed_share(extent: Extent) -> float:
    """Operations of the decomposition over full attention's, long inputs, balanced groups (METHOD section 4)."""
    groups, top_k = extent.num_groups, extent.top_k
    share = top_k * top_k / groups
    return share + 2 / (groups * (groups - 1)) if top_k == 2 and groups > 1 else share


def decomposition_fits(query: Tensor, key: Tensor, *, num_groups: int, plain: bool) -> bool:
    """True when `flash_decomposition` can run: half precision, all queries, no padding, no softcap, room for groups.

    Args:
        query: (B, Hq, Tq, D); key: (B, Hkv, Tk, D).
        num_groups: K, which takes head dimensions of its own.
        plain: no padding, no softcap, no gradient.
    """
    size = query.shape[-1]
    return (
        plain
        and query.shape[2] == key.shape[2]
        and size + num_groups + -(size + num_groups) % 8 <= LARGEST_HEAD
        and unusable(query.device, query.dtype, size) is None
    )


def choose_on_cuda(
    query: Tensor, key: Tensor, extent: Extent, *, key_padding: Tensor | None, softcap: float | None, gradients: bool
) -> str:
    """Name the backend ("decomposed", "flex" or "masked") for Focus that is not full attention.

    Args:
        query: (B, Hq, Tq, D); key: (B, Hkv, Tk, D).
        extent: K, k and uniformity of the memberships.
        key_padding, softcap: as in `focus_attention`.
        gradients: True when a backward pass will follow, which flex has and the decomposition has not.
    """
    length = key.shape[2]
    plain = key_padding is None and softcap is None and not gradients
    fits = decomposition_fits(query, key, num_groups=extent.num_groups, plain=plain)
    if fits and length >= DECOMPOSED_FROM.get(extent.top_k, length + 1) and decomposed_share(extent) <= WORTH:
        return "decomposed"
    long = length >= COMPILE_FROM and query.shape[2] > 1
    if not long or query.dtype == torch.float64 or query.shape[-1] < SMALLEST_FLEX_HEAD:
        return "masked"
    from focus_runtime.attention.flex import works  # loads torch's compiler, which takes a second

    return "flex" if works(query.device, query.dtype, query.shape[-1], gradients=gradients) else "masked"
