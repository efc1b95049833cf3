"""Factors of the logits under Focus: how far each head's window reaches, and the queries multiplied accordingly.

Under a mask the same logits make attention sharper than it was, the more of the text the mask may drop. So a head's
factor acts by the share of the text that lies beyond its window: not at all where the window reaches everything or the
head has full attention, and wholly, at most, in an endless text.

Shape suffixes: B batch, H query heads (Hq), T tokens (Tq queries, Tk keys), D head size.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from focus_runtime.attention.reference import needs_gradient
from focus_runtime.budget import HeadCounts, HeadGroup
from focus_runtime.composition.reach import Reach, reach_of
from focus_runtime.composition.state import FocusLayer
from focus_runtime.gpu import attention_fits, tried

if TYPE_CHECKING:
    from focus_runtime.attention.cuda.tiles import HeadFactors

FACTORS = "factors of the logits"  # name of the Triton kernel in warnings


def with_factors(
    layer: FocusLayer,
    query: Tensor,
    total: int,
    num_key_heads: int,
    padding: Tensor | None = None,
    groups: tuple[HeadGroup, ...] | None = None,
) -> Tensor:
    """Queries of Focus, (B, Hq, Tq, D), each multiplied by its head's factor ** share of the text beyond the window.

    A query that n tokens precede or are, is multiplied by factor ** max(0, 1 - (window + 1) / n) with the window of its
    own head, and so are its logits; that of a head with full attention by nothing. n is at most the layer's own sliding
    window. Where windows grow, window + 1 grows as they do, without being rounded.

    Args:
        layer: of the call.
        query: the newest tokens'.
        total: tokens of the whole text so far.
        num_key_heads: key-value heads.
        padding: (B, Tk) bool, True for real tokens of the last Tk, or None when all are.
        groups: heads by setting; those in force when None.
    """
    counts, new = HeadCounts(num_key_heads, query.shape[1]), query.shape[2]
    visible = min(total, layer.sliding or total)  # to the newest token
    acting = acting_factors(layer, counts, query.device, visible, groups)
    if acting is None:
        return query
    factors_H, reach = acting
    if padding is None and _fits(query, factors_H):
        scaled = multiplied(query, head_factors(factors_H, reach), total, layer.sliding)
        if scaled is not None:
            return scaled
    if padding is None and new == 1:  # a decode step: each operation more is one in every layer
        return (query * (factors_H ** reach.beyond(visible, total - 1))[:, None, None]).to(query.dtype)
    if padding is None:
        visible_BT = torch.arange(total - new + 1, total + 1, device=query.device)[None]
    else:
        visible_BT = (total - padding.shape[1] + padding.cumsum(1))[:, -new:]
    share_BHT = reach.beyond_each(visible_BT.clamp(1, layer.sliding), visible_BT - 1)
    return (query * (factors_H[:, None] ** share_BHT)[..., None]).to(query.dtype)


def multiplied(query: Tensor, factors: HeadFactors, total: int, furthest: int | None) -> Tensor | None:
    """The same in one kernel; None where it fails.

    Args:
        query: (B, Hq, Tq, D) in half precision, the last dimension contiguous.
        factors: of the heads.
        total: tokens of the whole text so far.
        furthest: the layer's own sliding window.
    """
    return tried(FACTORS, query, lambda: _kernels().multiplied_on_gpu(query, factors, total, furthest))


@functools.cache  # an import statement takes longer
def _kernels() -> Any:
    from focus_runtime.attention.cuda import tiles  # needs Triton

    return tiles


def acting_factors(
    layer: FocusLayer,
    counts: HeadCounts,
    device: torch.device,
    visible: int,
    groups: tuple[HeadGroup, ...] | None = None,
) -> tuple[Tensor, Reach] | None:
    """Factors by query head, (Hq,), and the reach of the heads; None where none of them acts.

    Args:
        layer: of the call.
        counts: heads of the layer.
        device: of the queries.
        visible: tokens up to the newest that its layer reaches.
        groups: heads by setting; those in force when None.
    """
    assert layer.router is not None, "layers without a router keep their own attention"
    factors_H = layer.router.logit_factors
    if factors_H is None or not layer.owner.config.logit_factors:
        return None
    if groups is None:
        reach = layer.reach(layer.heads(counts), counts, device)
    else:
        reach = reach_of(groups, counts, device, layer.owner.config.window_growth)
    return None if visible <= reach.least else (factors_H, reach)


def head_factors(factors: Tensor, reach: Reach) -> HeadFactors:
    """What kernels multiply queries by.

    Args:
        factors: (Hq,) float32, above 0.
        reach: of the heads.
    """
    return _kernels().HeadFactors(factors, reach.acts, reach.tokens, reach.growth)


def kernels_read(factors: Tensor) -> bool:
    """Whether kernels, which have no backward, take such factors.

    Args:
        factors: (Hq,).
    """
    return factors.dtype == torch.float32 and not needs_gradient(factors)


def _fits(query: Tensor, factors_H: Tensor) -> bool:
    """Whether one kernel multiplies such queries, (B, Hq, Tq, D)."""
    return attention_fits(FACTORS, query, query, query) and kernels_read(factors_H) and not needs_gradient(query)
