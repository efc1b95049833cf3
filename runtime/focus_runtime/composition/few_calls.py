"""Heads of unequal settings in few calls: which kernels take a layer's call, and what is known of its groups.

Shape suffixes: B batch, H query heads, Q queries, T keys, D head size, S distinct top-k.
"""

from __future__ import annotations

from torch import Tensor

from focus_runtime.attention.cuda.decomposed import GROUPED
from focus_runtime.attention.decode import DECODING
from focus_runtime.attention.dispatch import choose_backend, fused_inside_window
from focus_runtime.attention.fused import STEP_QUERIES, fused_by_head
from focus_runtime.attention.reference import needs_gradient
from focus_runtime.budget import HeadGroup
from focus_runtime.composition.by_head import extent_of, fits, step_by_head, text_by_head, text_plan
from focus_runtime.composition.call import Call
from focus_runtime.composition.gpu_plan import TextPlan
from focus_runtime.composition.heads import LayerHeads
from focus_runtime.composition.state import FocusLayer
from focus_runtime.mask.dense import membership_extent
from focus_runtime.mask.rule import Extent, PairRule

ANY_STEP = ("reference", "masked", "decode", "fused", "flex")  # backends that take fewer queries than keys


def in_few_calls(
    layer: FocusLayer, call: Call, heads: LayerHeads, groups_SBT: Tensor
) -> tuple[Tensor, str, tuple[HeadGroup, ...]] | None:
    """What kernels that take heads of unequal settings give; None where they do not take the call.

    Args:
        layer, call: of the layer, without pairs added by hand.
        heads: of the layer.
        groups_SBT: int64 bit sets of the keys by distinct top-k.

    Returns:
        (B, Q, H, D), the backend's name, and the groups whose heads are not in it.
    """
    if call.query.device.type == "cpu":
        return _in_fused_call(layer, call, heads, groups_SBT)
    return _in_gpu_calls(layer, call, heads, groups_SBT)


def _in_fused_call(
    layer: FocusLayer, call: Call, heads: LayerHeads, groups_SBT: Tensor
) -> tuple[Tensor, str, tuple[HeadGroup, ...]] | None:
    """All heads but full ones, where the compiled kernel suits the shortest window: to ask for each costs more."""
    owner, sliding = layer.owner, layer.sliding
    tensors = (call.query, call.key, call.value)
    few = call.query.shape[2] <= STEP_QUERIES and call.query.shape[2] < call.key.shape[2]
    sparse = [group.setting for group in heads.groups if not group.setting.full]
    if few or len(sparse) < 2 or needs_gradient(*tensors):
        return None
    beyond = sliding is not None and call.total > sliding
    if beyond:
        if call.query.shape[2] != call.total or not fused_inside_window(owner.backend, *tensors):
            return None
    else:
        near = min(sparse, key=lambda setting: setting.window)
        groups_BT, extent = groups_SBT[heads.top_ks.index(near.top_k)], extent_of_call(layer, call, near.top_k)
        if backend_of_call(owner.backend, call, groups_BT, PairRule.of(owner.config, near.window), extent) != "fused":
            return None
    rule = PairRule.of(owner.config, 0, sliding if beyond else None)
    rules = heads.rules(heads.full)
    out_BQHD = fused_by_head(*tensors, groups_SBT, rules, rule, call.scoring, call.padding, clock=owner.seconds)
    return out_BQHD, "fused", heads.full


def _in_gpu_calls(
    layer: FocusLayer, call: Call, heads: LayerHeads, groups_SBT: Tensor
) -> tuple[Tensor, str, tuple[HeadGroup, ...]] | None:
    """See by_head.py."""
    owner, new, length = layer.owner, call.query.shape[2], call.key.shape[2]
    if heads.groups == heads.full or (layer.sliding is not None and call.total > layer.sliding):
        return None
    if new == 1 < length and fits(DECODING, owner.backend, call):
        out_BQHD = step_by_head(call, heads, groups_SBT, PairRule.of(owner.config, 0))
        return None if out_BQHD is None else (out_BQHD, "decode", ())
    if new != length or not fits(GROUPED, owner.backend, call):
        return None
    extents = [extent_of_call(layer, call, top_k) for top_k in heads.top_ks]
    known = [extent or membership_extent(own) for extent, own in zip(extents, groups_SBT, strict=True)]
    plan = plan_of(layer, call)
    tensors = (call.query, call.key, call.value)
    found = None if plan is None else text_by_head(plan, *tensors, groups_SBT.unbind(), known, owner.seconds)
    if found is None:
        return None
    out_BQHD, with_full = found
    return out_BQHD, "decomposed", () if with_full else heads.full


def plan_of(layer: FocusLayer, call: Call) -> TextPlan | None:
    """What kernels on a GPU need to know of a whole text; see `text_plan`."""
    return text_plan(layer, call.query, call.key, call.value, call.scoring.scale, call.scoring.softcap)


def extent_of_call(layer: FocusLayer, call: Call, top_k: int) -> Extent | None:
    """What is known of the groups without looking at them, which would make the host wait for a GPU."""
    assignment, config = layer.current_pass.assignment, layer.owner.config
    whole = call.query.shape[2] == call.key.shape[2]  # else a cache holds groups that another rule may have decided
    if assignment is None or not whole or not (assignment.uniform or assignment.beyond):
        return None
    if top_k == 0 and assignment.edit is not None:  # tokens linked by hand see each other all the same
        return None
    return extent_of(top_k, config.num_groups, beyond=not assignment.uniform)


def backend_of_call(requested: str, call: Call, membership: Tensor, rule: PairRule, extent: Extent | None) -> str:
    """The backend of a call for heads of one setting.

    Args:
        requested: by the user, "auto" or a name.
        call: for these heads.
        membership: (B, Tk) int64 bit sets of the keys.
        rule: of the heads.
        extent: what is known of the groups.
    """
    continued = call.query.shape[2] < call.key.shape[2]  # where a backend chosen for prefill would refuse
    if requested != "auto" and not (continued and requested not in ANY_STEP):
        return requested
    return choose_backend(
        call.query,
        call.key,
        membership,
        window=rule.window,
        num_sinks=rule.num_sinks,
        window_growth=rule.growth,
        key_padding=call.padding,
        softcap=call.scoring.softcap,
        gradient=needs_gradient(call.query, call.key, call.value),
        value=call.value,
        extent=extent,
    )
