"""The factors of the logits: what each head multiplies its queries by.

Under a mask the same logits make attention sharper than it was, the more of the text the mask may drop. So a head's
factor acts by the share of the text that lies beyond its window: not at all where the window reaches everything or the
head has full attention, and wholly, at most, in an endless text.

Shape suffixes: B batch, H query heads (Hq), T tokens (Tq queries, Tk keys), D head size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focus_runtime.attention.reference import needs_gradient
from focus_runtime.budget import HeadGroup
from focus_runtime.composition.heads import Reach, reach_of
from focus_runtime.composition.state import Call, FocusLayer
from focus_runtime.gpu import attention_fits, tried

if TYPE_CHECKING:
    from focus_runtime.attention.cuda.tiles import HeadFactors

FACTORS = "factors of the logits"  # name of the Triton kernel in warnings


def with_factors(layer: FocusLayer, call: Call, groups: tuple[HeadGroup, ...] | None = None) -> Call:
    """The same call with each query multiplied by its head's factor ** share of the text beyond the window.

    A query that sees n tokens is multiplied by factor ** max(0, 1 - (window + 1) / n) with the window of its head, and
    so are its logits. Where windows grow, window + 1 grows as they do, without being rounded. `groups`: heads by
    setting; the current ones when None.
    """
    factors_H = acting_factors(layer)
    if factors_H is None:
        return call
    query, padding, total, new = call.query, call.padding, call.total, call.query.shape[2]
    if groups is None:
        reach = layer.plan(call).reach
    else:
        reach = reach_of(groups, call.counts, layer.owner.config, query.device)
    if min(total, layer.sliding or total) <= reach.least:
        return call
    if padding is None:
        scaled = _multiplied(query, factors_H, reach, total, layer.sliding)
        if scaled is not None:
            return replace(call, query=scaled)
        visible_BT = torch.arange(total - new + 1, total + 1, device=query.device)[None]
    else:
        visible_BT = (total - padding.shape[1] + padding.cumsum(1))[:, -new:]
    share_BHT = reach.beyond(visible_BT.clamp(1, layer.sliding), visible_BT - 1)
    return replace(call, query=(query * (factors_H[:, None] ** share_BHT)[..., None]).to(query.dtype))


def acting_factors(layer: FocusLayer) -> Tensor | None:
    """Factors by query head, (Hq,); None where the layer has none, or its settings leave them out."""
    assert layer.router is not None, "layers without a router keep their own attention"
    return layer.router.logit_factors if layer.owner.config.logit_factors else None


def _multiplied(query: Tensor, factors: Tensor, reach: Reach, total: int, furthest: int | None) -> Tensor | None:
    """Queries, (B, Hq, Tq, D), with their heads' factors, by one kernel; None where it does not take them or fails."""
    if not kernels_read(factors) or needs_gradient(query) or not attention_fits(FACTORS, query, query, query):
        return None
    from focus_runtime.attention.cuda.tiles import multiplied_on_gpu  # needs Triton

    own = head_factors(factors, reach)
    return tried(FACTORS, query, lambda: multiplied_on_gpu(query, own, total, furthest))


def head_factors(factors: Tensor, reach: Reach) -> HeadFactors:
    """What kernels multiply queries by: (Hq,) float32 factors above 0 and the reach of their heads."""
    from focus_runtime.attention.cuda.tiles import HeadFactors  # needs Triton

    return HeadFactors(factors, reach.acts, reach.tokens, reach.growth)


def kernels_read(factors: Tensor) -> bool:
    """Whether kernels, which have no backward, take such factors, (Hq,)."""
    return factors.dtype == torch.float32 and not needs_gradient(factors)
