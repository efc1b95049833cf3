"""What a layer computes: its own attention, as it is without Focus, or Focus with the settings of its heads.

Shape suffixes: B batch, H query heads, Q queries, T keys (Tk), D head size, S distinct top-k.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from focus_runtime.attention.decode import DECODING
from focus_runtime.attention.decomposed import GROUPED
from focus_runtime.attention.dispatch import attend, choose_backend, fused_inside_window, grouped_on_gpu
from focus_runtime.attention.fused import STEP_QUERIES, fused_attention, fused_step, step_fits
from focus_runtime.attention.masked import WindowedFocus, sliding_attention
from focus_runtime.attention.reference import beside_sinks, needs_gradient
from focus_runtime.budget import HeadGroup, HeadSetting
from focus_runtime.composition.cache import START_OVER
from focus_runtime.composition.factors import with_factors
from focus_runtime.composition.gpu import extent_of, fits, step_by_head, text_by_head
from focus_runtime.composition.heads import FULL, Plan, memberships
from focus_runtime.composition.state import Call, FocusLayer
from focus_runtime.errors import InputError
from focus_runtime.gpu import WITHOUT_CUDNN, attention_fits
from focus_runtime.mask.allowed_pairs import token_positions
from focus_runtime.mask.rule import Extent, PairRule
from focus_runtime.routing.router import Assignment

NEAR = 128  # tokens about the query that kernels of Focus compute apart, where all keys are seen
ANY_STEP = ("reference", "masked", "decode", "fused", "flex")  # backends that take fewer queries than keys
Together = tuple[Tensor, str, bool]  # (B, Q, H, D), its backend, and whether heads with full attention are in it

# --- the layer's own attention


def own_attention(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """The layer's own attention, (B, Q, H, D): causal, inside its own sliding window where it has one."""
    everything = layer.sliding is None or call.key.shape[2] <= layer.sliding
    if everything and call.sinks is None:
        return _full(module, call)
    if call.query.shape[2] == call.total and _fits_one_group(call):
        return _as_one_group(call, None if everything else layer.sliding)
    reach = call.key.shape[2] if layer.sliding is None else layer.sliding
    return sliding_attention(*call.tensors, reach, call.scoring, call.padding, sinks=call.sinks).transpose(1, 2)


def _full(module: Any, call: Call) -> Tensor:
    """Full causal attention, (B, Q, H, D): torch's SDPA, or our masked attention for softcap, which SDPA lacks."""
    query, key, value, padding = *call.tensors, call.padding
    if call.scoring.softcap is not None:
        if _fits_one_group(call):
            return _as_one_group(call, None)
        step = query.shape[2] == 1 and padding is None
        backend = "decode" if step and attention_fits(DECODING, query, key, value) else "masked"
        return _attended(call, _one_group(call), PairRule(window=key.shape[2]), backend, None)
    if padding is None and 1 < query.shape[2] != key.shape[2]:  # SDPA aligns is_causal to the first key
        padding = _one_group(call).bool()
    mask_B1QT = None if padding is None else _causal_mask(padding, query, key)
    causal = mask_B1QT is None and query.shape[2] > 1
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    shared_by = query.shape[1] // key.shape[1]
    if getattr(module, "num_key_value_groups", shared_by) != shared_by:  # only some query heads of a key-value head
        module = SimpleNamespace(num_key_value_groups=shared_by)
    step = query.shape[2] == 1 and query.device.type == "cuda"
    with WITHOUT_CUDNN if step else nullcontext():
        return sdpa(
            module, query, key, value, mask_B1QT, scaling=call.scoring.scale, is_causal=causal, dropout=call.dropout
        )[0]


def _one_group(call: Call) -> Tensor:
    """(B, Tk) membership of keys that are all in one group."""
    return torch.ones((call.key.shape[0], call.key.shape[2]), dtype=torch.int64, device=call.key.device)


def _fits_one_group(call: Call) -> bool:
    """Whether the GPU kernels of Focus take this call."""
    return grouped_on_gpu("auto", *call.tensors, NEAR, call.scoring, call.padding)


def _as_one_group(call: Call, sliding: int | None) -> Tensor:
    """Attention to all keys in reach, (B, Q, H, D), as Focus with every token in one group."""
    rule, extent = PairRule(NEAR, sliding_window=sliding), Extent(1, 1, uniform=True)
    return _attended(call, _one_group(call), rule, "decomposed", extent)


def _causal_mask(padding_BT: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """(B, 1, Q, T) bool."""
    length_q, length_k = query.shape[2], key.shape[2]
    row_Q = torch.arange(length_k - length_q, length_k, device=query.device)
    column_T = torch.arange(length_k, device=query.device)
    causal_QT, diagonal_QT = column_T[None, :] <= row_Q[:, None], column_T[None, :] == row_Q[:, None]
    return ((causal_QT & padding_BT[:, None, :]) | diagonal_QT)[:, None]  # the diagonal keeps padded rows finite


# --- Focus


def focused_attention(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """What the settings in force give, (B, Q, H, D)."""
    call = with_factors(layer, call)
    plan, groups_SBT = layer.plan(call), groups_of_keys(layer, call)
    together = None
    if call.sinks is None and not plan.heads.uniform:
        on_cpu = call.query.device.type == "cpu"
        together = (_together_on_cpu if on_cpu else _together_on_gpu)(layer, plan, call, groups_SBT)

    def one_setting(part: Call, setting: HeadSetting) -> Tensor:
        groups_BT = groups_SBT[plan.heads.top_ks.index(setting.top_k)]
        return at_setting(layer, part, setting, groups_BT)

    return by_setting(module, layer, call, one_setting, together)


def by_setting(
    module: nn.Module,
    layer: FocusLayer,
    call: Call,
    one_setting: Callable[[Call, HeadSetting], Tensor],
    together: Together | None = None,
) -> Tensor:
    """Heads of equal settings in one call of `one_setting`, (B, Q, H, D); full ones by the layer's own attention, and
    none that were computed `together` before."""
    current, plan = layer.current_pass, layer.plan(call)
    current.counts = plan.counts
    if plan.heads.uniform:
        return one_setting(call, plan.heads.groups[0].setting)
    left = plan.parts
    if together is not None:
        out_BQHD, current.backend, with_full = together
        backends = [current.backend]
        left = () if with_full else tuple(own for own in left if own[0].setting.full)
    else:
        batch, num_heads, new, size = call.query.shape
        # no view: autograd refuses to write by a list of numbers into a view written by a slice before
        out_BQHD, backends = call.query.new_empty(batch, new, num_heads, size), []
    for group, part in left:
        own = call.part(part)
        if group.setting.full:
            current.backend, result_BQHD = FULL, own_attention(module, layer, own)
        else:
            result_BQHD = one_setting(own, group.setting)
        out_BQHD[:, :, part.query] = result_BQHD
        backends.append(current.backend)
    current.backend = ", ".join(dict.fromkeys(backends))
    return out_BQHD


def _together_on_cpu(layer: FocusLayer, plan: Plan, call: Call, groups_SBT: Tensor) -> Together | None:
    """All heads of a step, or all heads of a text but full ones, in one call of the compiled kernel.

    Attention takes 123 instead of 166 ms at 256 tokens, and 597 instead of 757 at 1,024 (LOG.md, 2026-11-26).
    """
    owner, sliding = layer.owner, layer.sliding
    tensors, new = call.tensors, call.query.shape[2]
    beyond = sliding is not None and call.total > sliding
    if new <= STEP_QUERIES and new < call.key.shape[2]:
        if call.padding is not None or beyond or owner.backend not in ("auto", "fused") or not step_fits(*tensors):
            return None
        step_BQHD = fused_step(*tensors, groups_SBT, plan.rules, plan.rule, call.scoring, owner.seconds)
        return step_BQHD, plan.step_backends, True
    sparse = [group.setting for group in plan.heads.groups if not group.setting.full]
    if len(sparse) < 2 or needs_gradient(*tensors):
        return None
    if beyond:
        if new != call.total or not fused_inside_window(owner.backend, *tensors):
            return None
    else:  # where the kernel suits the shortest window: to ask for each costs more
        near = min(sparse, key=lambda setting: setting.window)
        groups_BT, extent = groups_SBT[plan.heads.top_ks.index(near.top_k)], _extent(layer, call, near.top_k)
        if _backend(owner.backend, call, groups_BT, PairRule.of(owner.config, near.window), extent) != "fused":
            return None
    rule = PairRule.of(owner.config, 0, sliding if beyond else None)
    inputs = (*tensors, groups_SBT, rule, call.scoring, call.padding)
    out_BHQD, _ = fused_attention(*inputs, clock=owner.seconds, heads=plan.rules_without_full)
    return out_BHQD.transpose(1, 2), "fused", False


def _together_on_gpu(layer: FocusLayer, plan: Plan, call: Call, groups_SBT: Tensor) -> Together | None:
    """Heads of unequal settings in a call for each top-k; see gpu.py."""
    owner, heads, new, length = layer.owner, plan.heads, call.query.shape[2], call.key.shape[2]
    if heads.groups == heads.full or (layer.sliding is not None and call.total > layer.sliding):
        return None
    if new == 1 < length and fits(DECODING, owner.backend, call):
        step_BQHD = step_by_head(plan, call, groups_SBT)
        return None if step_BQHD is None else (step_BQHD, "decode", True)
    if new != length or not fits(GROUPED, owner.backend, call):
        return None
    extents = [_extent(layer, call, top_k) for top_k in heads.top_ks]
    found = text_by_head(plan, call, groups_SBT, extents, owner.seconds)
    return None if found is None else (found[0], "decomposed", found[1])


def every_head_at(layer: FocusLayer, call: Call, assignment: Assignment, setting: HeadSetting) -> Tensor:
    """What all heads would return at a setting other than full attention, (B, Q, H, D); `call` is without factors."""
    membership_BT = memberships(assignment, (setting.top_k,), layer.owner.config.top_k)[0]
    every_head = HeadGroup(setting, tuple(range(call.counts.key)))
    return at_setting(layer, with_factors(layer, call, (every_head,)), setting, membership_BT)


def at_setting(layer: FocusLayer, call: Call, setting: HeadSetting, membership_BT: Tensor) -> Tensor:
    """Focus with one setting, (B, Q, H, D)."""
    owner, current, tensors = layer.owner, layer.current_pass, call.tensors
    rule, extent = PairRule.of(owner.config, setting.window), _extent(layer, call, setting.top_k)
    differentiable_sinks = call.sinks is not None and needs_gradient(*tensors)
    if not differentiable_sinks and (layer.sliding is None or call.total <= layer.sliding):
        current.backend = _backend(owner.backend, call, membership_BT, rule, extent)
        return _attended(call, membership_BT, rule, current.backend, extent, layer)
    whole = call.query.shape[2] == call.total  # else the cache has dropped keys, or holds more than the window
    inside, plain = replace(rule, sliding_window=layer.sliding), whole and not differentiable_sinks
    if plain and grouped_on_gpu(owner.backend, *tensors, inside.near(call.total), call.scoring, call.padding):
        current.backend = "decomposed"
    elif plain and fused_inside_window(owner.backend, *tensors):
        current.backend = "fused"
    else:
        current.backend = "sliding"
        focus = WindowedFocus(membership_BT, _positions(layer, call, membership_BT), rule)
        reach, padding = layer.sliding or call.total, call.padding
        return sliding_attention(*tensors, reach, call.scoring, padding, focus=focus, sinks=call.sinks).transpose(1, 2)
    return _attended(call, membership_BT, inside, current.backend, extent, layer)


def _attended(
    call: Call, groups_BT: Tensor, rule: PairRule, backend: str, extent: Extent | None, layer: FocusLayer | None = None
) -> Tensor:
    """One backend's output, beside learned sinks where there are some, (B, Q, H, D); timed for a layer."""
    out_BHQD, lse_BHQ = attend(
        *call.tensors,
        groups_BT,
        rule,
        call.scoring,
        call.padding,
        backend=backend,
        return_lse=call.sinks is not None,
        clock=None if layer is None else layer.owner.seconds,
        extent=extent,
    )
    if call.sinks is not None:
        assert lse_BHQ is not None, "it was asked for"
        out_BHQD = beside_sinks(out_BHQD, lse_BHQ, call.sinks)
    return out_BHQD.transpose(1, 2)


def _extent(layer: FocusLayer, call: Call, top_k: int) -> Extent | None:
    """What is known of the groups without looking at them, which would make the host wait for a GPU."""
    whole = call.query.shape[2] == call.key.shape[2]  # else a cache holds groups that another rule may have decided
    return extent_of(layer.current_pass.assignment, top_k, layer.owner.config.num_groups) if whole else None


def _backend(requested: str, call: Call, membership: Tensor, rule: PairRule, extent: Extent | None) -> str:
    """The backend of a call for heads of one setting, where the user asks for "auto" or for a backend by name."""
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
        gradient=needs_gradient(*call.tensors),
        value=call.value,
        extent=extent,
    )


def groups_of_keys(layer: FocusLayer, call: Call) -> Tensor:
    """Membership of the keys at hand, (S, B, Tk); the new tokens' is stored with their keys on the way."""
    current, config, top_ks = layer.current_pass, layer.owner.config, layer.plan(call).heads.top_ks
    assert current.assignment is not None, "the pre-hook runs before attention"
    new, history = memberships(current.assignment, top_ks, config.top_k), current.history
    if history is None or config.assignment == "sinkhorn":
        return new  # a first pass: nothing will continue from sinkhorn groups
    count = new.shape[2]
    if history.length < history.seen:  # else it is the second call of a module, as in differential attention
        history.append(new, None if call.padding is None else call.padding[:, -count:], layer.owner.writer)
    membership = history.membership
    if history.length != history.seen or (layer.sliding is None and call.key.shape[2] != history.length):
        raise InputError(
            f"layer {layer.index} got {call.key.shape[2]} keys but groups of {history.length} tokens",
            expected="a cache that nothing but the model and generate() has changed",
            fix=START_OVER,
        )
    return membership[..., history.length - call.key.shape[2] :]


def _positions(layer: FocusLayer, call: Call, membership: Tensor) -> Tensor:
    """(B, Tk) positions of the keys at hand, counted from each text's first real token."""
    history = layer.current_pass.history
    if history is None or history.length == 0:
        return token_positions(membership, call.padding)
    count = torch.arange(call.total - call.key.shape[2], call.total, device=membership.device)
    return count.expand_as(membership) if history.first_real is None else count - history.first_real[:, None]
