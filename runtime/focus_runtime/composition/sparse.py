"""What the heads of one layer execute under Focus: every setting of the budget, training gates, what is measured.

Shape suffixes: B batch, H query heads, Q queries, T keys (Tk), D head size, S distinct top-k.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from focus_runtime.attention.cuda.decomposed import GROUPED
from focus_runtime.attention.decomposed_backward import straight_through_attention
from focus_runtime.attention.dispatch import attend, fused_inside_window, grouped_on_gpu
from focus_runtime.attention.flash import has_backward
from focus_runtime.attention.masked import WindowedFocus, sliding_attention
from focus_runtime.attention.reference import beside_sinks, needs_gradient
from focus_runtime.attention.soft import gated_attention
from focus_runtime.budget import HeadGroup, HeadSetting
from focus_runtime.composition.added_pairs import attend_with_added
from focus_runtime.composition.by_head import fits, short_by_head, short_pays
from focus_runtime.composition.cache import START_OVER
from focus_runtime.composition.call import Call, of_heads
from focus_runtime.composition.factors import kernels_read, with_factors
from focus_runtime.composition.few_calls import backend_of_call, extent_of_call, in_few_calls, plan_of
from focus_runtime.composition.heads import LayerHeads, by_key_head, head_masks, memberships, parts_of
from focus_runtime.composition.own import own_attention
from focus_runtime.composition.state import FULL, Alternatives, Comparison, FocusLayer, Probe, is_plain
from focus_runtime.errors import InputError, ModelError
from focus_runtime.mask.dense import token_positions
from focus_runtime.mask.rule import PairRule
from focus_runtime.models.structure import output_projection
from focus_runtime.routing.router import Assignment

DENSE_UP_TO = 4096  # tokens up to which training on the hard mask computes all pairs, dropped ones included


def sparse_attention(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """Focus, (B, Q, H, D)."""
    short_BQHD = _short_on_gpu(layer, call)
    if short_BQHD is not None:
        return short_BQHD
    unchanged, call = call, _with_factors(layer, call)
    if layer.owner.comparison is not None:
        return _compared(module, layer, unchanged, call, layer.owner.comparison)
    if layer.owner.probe is not None:
        return _probed(module, layer, unchanged, layer.owner.probe)
    out_BQHD = _executed(module, layer, call)
    if layer.owner.observer is not None:
        layer.owner.observer(layer, call, out_BQHD)
    if layer.owner.alternatives is None:
        return out_BQHD
    return _with_alternatives(module, layer, unchanged, out_BQHD, layer.owner.alternatives)


def _short_on_gpu(layer: FocusLayer, call: Call) -> Tensor | None:
    """A whole short text, (B, T, H, D), by one kernel for all heads and their factors; None where it takes no such call
    or fails, and while anything but the output is asked for."""
    owner, current, length = layer.owner, layer.current_pass, call.query.shape[2]
    assignment = current.assignment
    if (
        call.sinks is not None
        or not call.key.shape[2] == call.total == length
        or not fits(GROUPED, owner.backend, call)
    ):
        return None
    if not is_plain(owner) or assignment is None:
        return None
    own = (assignment.uniform or assignment.beyond) and assignment.edit is None  # else there may be bits from K on
    if not own or (layer.sliding is not None and length > layer.sliding):
        return None
    plan = plan_of(layer, call)
    if plan is None or not short_pays(plan, call.query):
        return None
    factors = plan.factors if length > plan.factors_from else None
    if factors is not None and not kernels_read(factors.factors):
        return None
    groups_SBT = _groups(layer, call, plan.heads)
    out_BTHD = short_by_head(plan, call.query, call.key, call.value, groups_SBT, factors, owner.seconds)
    if out_BTHD is None:
        if current.history is not None:
            current.history.length = 0  # they are added again
        return None
    current.counts, current.backend = plan.counts, "decomposed"
    return out_BTHD


def _with_factors(layer: FocusLayer, call: Call, groups: tuple[HeadGroup, ...] | None = None) -> Call:
    query = with_factors(layer, call.query, call.total, call.key.shape[1], call.padding, groups)
    return call if query is call.query else replace(call, query=query)


def _compared(module: nn.Module, layer: FocusLayer, unchanged: Call, call: Call, comparison: Comparison) -> Tensor:
    """Full attention, (B, Q, H, D); the relative squared error of Focus after the output projection is noted."""
    with torch.no_grad():
        full_BQHD = own_attention(module, layer, unchanged)
    project = output_projection(module, full_BQHD.shape[2])
    expected = project(full_BQHD).float().square().sum()
    error = project(_executed(module, layer, call) - full_BQHD).float().square().sum()
    comparison.errors[layer.index] = error / expected.clamp_min(torch.finfo(torch.float32).tiny)
    return full_BQHD


def _probed(module: nn.Module, layer: FocusLayer, call: Call, probe: Probe) -> Tensor:
    """Full attention, (B, Q, H, D); when its gradient is known, what each setting would change is weighed with it."""
    full_BQHD = own_attention(module, layer, call)
    assignment, before_BQHD = layer.current_pass.assignment, full_BQHD.detach()
    assert assignment is not None, "the pre-hook runs before attention"

    def weigh(gradient_BQHD: Tensor) -> None:
        rows = []
        for setting in probe.settings:
            if setting.full:
                rows.append(torch.zeros(before_BQHD.shape[:3], device=before_BQHD.device).transpose(1, 2))
                continue
            change_BQHD = _at_setting(layer, call, assignment, setting) - before_BQHD
            rows.append((change_BQHD * gradient_BQHD).sum(dim=-1, dtype=torch.float32).transpose(1, 2))
        probe.found[layer.index] = torch.stack(rows)

    out_BQHD = full_BQHD + probe.leaf.to(full_BQHD)
    if out_BQHD.requires_grad:
        out_BQHD.register_hook(torch.no_grad()(weigh))
    return out_BQHD


def _at_setting(layer: FocusLayer, call: Call, assignment: Assignment, setting: HeadSetting) -> Tensor:
    """What all heads would return at a setting other than full attention, (B, Q, H, D); `call` is without factors."""
    membership_BT = memberships(assignment, (setting.top_k,), layer.owner.config.top_k)[0]
    every_head = HeadGroup(setting, tuple(range(call.counts.key)))
    return _focused(layer, _with_factors(layer, call, (every_head,)), setting, membership_BT)


def _with_alternatives(
    module: nn.Module, layer: FocusLayer, call: Call, out_BQHD: Tensor, alternatives: Alternatives
) -> Tensor:
    """The same values, with a gradient for the weight of every other setting; `call` is as it came, without factors."""
    current = layer.current_pass
    assert current.assignment is not None, "the pre-hook runs before attention"
    counts = call.counts
    weights_SH = alternatives.of_layer(layer.index, counts.key, out_BQHD.device)
    executed, backend = out_BQHD.detach(), current.backend
    for setting, weight_H in zip(alternatives.settings, weights_SH, strict=True):
        with torch.no_grad():
            if setting.full:
                other_BQHD = own_attention(module, layer, call)
            else:
                other_BQHD = _at_setting(layer, call, current.assignment, setting)
            difference = by_key_head(other_BQHD - executed, 2, counts.key)
        out_BQHD = out_BQHD + (difference * weight_H[:, None, None]).flatten(2, 3).to(out_BQHD.dtype)
    current.backend = backend
    return out_BQHD


def _executed(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """What the settings in force give, (B, Q, H, D), pairs added by hand included."""
    current, owner = layer.current_pass, layer.owner
    current.counts = call.counts
    heads = layer.heads(current.counts)
    groups_SBT = None if owner.soft_gate is not None else _groups(layer, call, heads)
    if heads.uniform:
        out_BQHD = _focused(layer, call, heads.groups[0].setting, None if groups_SBT is None else groups_SBT[0])
    else:
        out_BQHD = _by_setting(module, layer, call, heads, groups_SBT)
    pairs_N3 = owner.added_pairs.get(layer.index)
    if pairs_N3 is None or groups_SBT is None:
        return out_BQHD
    masks = head_masks(heads, groups_SBT, owner.config, layer.sliding)
    return attend_with_added(call.query, call.key, call.value, call.scoring, masks, out_BQHD, pairs_N3, call.total)


def _by_setting(
    module: nn.Module, layer: FocusLayer, call: Call, heads: LayerHeads, groups_SBT: Tensor | None
) -> Tensor:
    """Heads of equal settings together, (B, Q, H, D)."""
    current = layer.current_pass
    backends: dict[str, None] = {}
    found = None
    if groups_SBT is not None and call.sinks is None:
        found = in_few_calls(layer, call, heads, groups_SBT)
    if found is not None:
        out_BQHD, current.backend, left = found
        backends[current.backend] = None
    else:
        batch, num_heads, new, size = call.query.shape
        # no view: autograd refuses to write by a list of numbers into a view written by a slice before
        out_BQHD, left = call.query.new_empty(batch, new, num_heads, size), heads.groups
    for group in left:
        setting = group.setting
        for part in parts_of(group, call.counts, copies=call.query.shape[2] > 1):
            own = of_heads(call, part)
            if setting.full:
                current.backend, result_BQHD = FULL, own_attention(module, layer, own)
            else:
                groups_BT = None if groups_SBT is None else groups_SBT[heads.top_ks.index(setting.top_k)]
                result_BQHD = _focused(layer, own, setting, groups_BT)
            out_BQHD[:, :, part.query] = result_BQHD
            backends[current.backend] = None
    current.backend = ", ".join(backends)
    return out_BQHD


def _focused(layer: FocusLayer, call: Call, setting: HeadSetting, membership_BT: Tensor | None) -> Tensor:
    """Focus with one setting, (B, Q, H, D); without groups in training, where gates are soft."""
    owner, current = layer.owner, layer.current_pass
    if membership_BT is None:
        return _gated(layer, call, setting).transpose(1, 2)
    rule, extent = PairRule.of(owner.config, setting.window), extent_of_call(layer, call, setting.top_k)
    differentiable_sinks = call.sinks is not None and needs_gradient(call.query, call.key, call.value)
    if differentiable_sinks or (layer.sliding is not None and call.total > layer.sliding):
        whole = call.query.shape[2] == call.total  # else the cache has dropped keys, or holds more than the window
        tensors, inside = (call.query, call.key, call.value), replace(rule, sliding_window=layer.sliding)
        plain = whole and not differentiable_sinks
        if plain and grouped_on_gpu(owner.backend, *tensors, inside.near(call.total), call.scoring, call.padding):
            current.backend, rule = "decomposed", inside
        elif plain and fused_inside_window(owner.backend, *tensors):
            current.backend, rule = "fused", inside
        else:
            current.backend = "sliding"
            focus = WindowedFocus(membership_BT, _positions(layer, call, membership_BT), rule)
            reach = layer.sliding or call.total
            return sliding_attention(
                *tensors, reach, call.scoring, call.padding, focus=focus, sinks=call.sinks
            ).transpose(1, 2)
    else:
        current.backend = backend_of_call(owner.backend, call, membership_BT, rule, extent)
    out_BHQD, lse_BHQ = attend(
        call.query,
        call.key,
        call.value,
        membership_BT,
        rule,
        call.scoring,
        call.padding,
        backend=current.backend,
        return_lse=call.sinks is not None,
        clock=owner.seconds,
        extent=extent,
    )
    if call.sinks is not None:
        assert lse_BHQ is not None, "it was asked for"
        out_BHQD = beside_sinks(out_BHQD, lse_BHQ, call.sinks)
    return out_BHQD.transpose(1, 2)


def _groups(layer: FocusLayer, call: Call, heads: LayerHeads) -> Tensor:
    """Membership of the keys at hand, (S, B, Tk); the new tokens' is stored with their keys on the way."""
    current, config = layer.current_pass, layer.owner.config
    assert current.assignment is not None, "the pre-hook runs before attention"
    new, history = memberships(current.assignment, heads.top_ks, config.top_k), current.history
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


def _gated(layer: FocusLayer, call: Call, setting: HeadSetting) -> Tensor:
    owner = layer.owner
    assert owner.soft_gate is not None
    assert layer.current_pass.assignment is not None
    if call.sinks is not None:
        raise ModelError(
            f"layer {layer.index} of this model has learned attention sinks, which soft gates do not know",
            fix="train with --loss layers, or another model",
        )
    if layer.sliding is not None and call.total > layer.sliding:
        raise ModelError(
            f"layer {layer.index} of this model attends to the last {layer.sliding} tokens only, but the training "
            f"text has {call.total}",
            expected=f"at most {layer.sliding} tokens",
            fix="train on shorter texts",
        )
    gate, rule = owner.soft_gate, PairRule.of(owner.config, setting.window)
    assignment = layer.current_pass.assignment
    plain = assignment.everywhere is None and call.scoring.softcap is None and call.padding is None
    if gate.hard and plain and has_backward(call.query) and call.total > DENSE_UP_TO:
        return straight_through_attention(
            call.query,
            call.key,
            call.value,
            assignment.probabilities,
            rule,
            call.scoring.scale,
            top_k=setting.top_k,
        )
    return gated_attention(
        call.query,
        call.key,
        call.value,
        assignment.probabilities,
        rule,
        call.scoring,
        gate=gate.gate,
        steepness=gate.steepness,
        hard_top_k=setting.top_k if gate.hard else None,
        everywhere=assignment.everywhere,
    )
