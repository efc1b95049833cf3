"""One decode step of a layer: the newest tokens of a cache that Focus filled, in one call of the fused kernel.

Shape suffixes: B batch, H query heads, Q new tokens, T all tokens, D head size, S settings.
"""

from __future__ import annotations

from torch import Tensor

from focus_runtime.attention.fused import fused_step, step_fits
from focus_runtime.attention.scoring import Scoring
from focus_runtime.composition.heads import memberships
from focus_runtime.composition.state import FocusLayer

FULL = "full attention"  # named with the backends, for heads whose budget gives them that


def is_step(layer: FocusLayer, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether these are the newest tokens of a cache that Focus filled, which one call of the fused kernel takes.

    What goes another way is judged there: a layer's own sliding window, a cache that holds more than the text.

    Args:
        layer: of the call.
        query: (B, Hq, Q, D); key, value: (B, Hkv, T, D), the cache included.
    """
    owner, history = layer.owner, layer.current_pass.history
    if history is None or layer.router is None or layer.sliding is not None or owner.backend not in ("auto", "fused"):
        return False
    if owner.measuring_full or not (
        owner.soft_gate is owner.alternatives is owner.comparison is owner.observer is None
    ):
        return False
    if owner.added_pairs:
        return False
    seen, new = history.seen, query.shape[2]
    follows = key.shape[2] == seen == history.length + new > new
    return follows and owner.config.assignment != "sinkhorn" and step_fits(query, key, value)


def attend_step(layer: FocusLayer, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
    """Focus for the newest tokens: all heads in one call, those with full attention too.

    Args:
        layer, query, key, value: as in `is_step`, which returned True.
        scoring: scale and softcap.

    Returns:
        (B, Q, H, D).
    """
    owner, current = layer.owner, layer.current_pass
    assert current.assignment is not None, "the pre-hook runs before attention"
    assert current.history is not None, "see `is_step`"
    current.num_heads = key.shape[1]
    heads = layer.heads(current.num_heads)
    new_SBT = memberships(current.assignment, heads.top_ks, owner.config.top_k)
    current.history.append(new_SBT, None, owner.writer)
    current.backend = ", ".join({FULL if group.setting.full else "fused": None for group in heads.groups})
    groups_SBT, sees = current.history.membership, layer.step_heads(heads)
    out_BHQD = fused_step(query, key, value, groups_SBT, sees, owner.config.num_sinks, scoring, owner.seconds)
    return out_BHQD.transpose(1, 2)
