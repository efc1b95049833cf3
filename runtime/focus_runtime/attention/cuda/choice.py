"""Which backend `auto` should take on CUDA: the one that takes least by what was measured on this GPU (calibration.py).

Where that cannot be had, and under gradients, estimates from operation counts decide. Per layer of 12 heads of 64 on an
H100-class card, full attention should take about 0.1 ms at 4K tokens. The decomposition makes 89 operations besides its
kernels for k = 1 and 153 for k = 2 (counted), most of them launches of some microseconds each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focus_runtime.attention.costs import FROM_TOKENS
from focus_runtime.attention.cuda.calibration import decomposed_share, gpu_costs, work_of
from focus_runtime.attention.cuda.decomposition import decomposition_fits, grouped_fits
from focus_runtime.attention.kernels.flash import has_backward
from focus_runtime.attention.scoring import Scoring
from focus_runtime.mask.extent import Extent

COMPILE_FROM = 2048  # tokens; below, compiling flex takes more time than it saves
DECOMPOSED_FROM = {1: 8192, 2: 16384}  # tokens by k
WORTH = 0.7  # share of full attention's operations up to which the decomposition is taken
SMALLEST_FLEX_HEAD = 16  # Triton's least matrix side


def choose_on_cuda(
    query: Tensor,
    key: Tensor,
    extent: Extent,
    *,
    window: int,
    key_padding: Tensor | None,
    softcap: float | None,
    gradients: bool,
) -> str:
    """Name the backend ("decomposed", "flex" or "masked") for Focus that is not full attention.

    Args:
        query: (B, Hq, Tq, D); key: (B, Hkv, Tk, D).
        extent: K, k and uniformity of the memberships.
        window, key_padding, softcap: as in `focus_attention`.
        gradients: True when a backward pass will follow: flex has one that waits for nothing.
    """
    length, whole = key.shape[2], query.shape[2] == key.shape[2] and key_padding is None and not gradients
    scoring = Scoring(1.0, softcap)
    if whole and grouped_fits(query, key, key, window, scoring):
        return "decomposed"  # one kernel for each of its parts: the fastest at every length, measured on an H200
    if extent.top_k == 0:  # heads that see their window and the first tokens alone: what was measured is of groups
        skips = (
            query.shape[2] == length >= COMPILE_FROM and key_padding is None and _flex_fits(query, gradients=gradients)
        )
        return "flex" if skips else "masked"
    plain = key_padding is None and softcap is None
    fits = whole and decomposition_fits(query, key, extent, window=window, scoring=scoring)
    if query.shape[2] == length >= FROM_TOKENS and not gradients:
        costs = gpu_costs(query.device, query.dtype)
        if costs is not None:
            works = {name: work_of(name, tuple(query.shape), extent, window) for name in costs.seconds}
            can_run = {"masked": lambda: True, "decomposed": lambda: fits, "flex": lambda: _flex_fits(query)}
            return next(name for name in costs.ranked(works) if can_run[name]())  # flex is tried where it would win
    if fits and length >= DECOMPOSED_FROM.get(extent.top_k, length + 1) and decomposed_share(extent) <= WORTH:
        return "decomposed"
    if length < COMPILE_FROM or query.shape[2] == 1:
        return "masked"
    if _flex_fits(query, gradients=gradients):
        return "flex"
    linear = gradients and plain and query.shape[2] == length and extent.top_k <= 2
    return "decomposed" if linear and has_backward(query) else "masked"  # the memory of masked grows with T^2


def _flex_fits(query: Tensor, *, gradients: bool = False) -> bool:
    if query.dtype == torch.float64 or query.shape[-1] < SMALLEST_FLEX_HEAD:
        return False
    from focus_runtime.attention.flex import works  # loads torch's compiler, which takes a second

    return works(query.device, query.dtype, query.shape[-1], gradients=gradients)
