"""What one attention module does while Focus is composed: route its hidden states, then attend.

transformers calls `focus_forward` with queries, keys and values after QK-norm, rotary embedding and cache update; hooks
before and after the module read the hidden states and check that the call was made.

The state of a layer, and of the composition it belongs to, is defined in state.py; step.py computes decode steps.

Shape suffixes: B batch, H query heads (Hq), Q queries (Tq), T keys (Tk) or, where the text is read at once, tokens, D
head size, K groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from focus_runtime.attention.checks import needs_gradient
from focus_runtime.attention.decomposed_backward import straight_through_attention
from focus_runtime.attention.dispatch import attend, choose_backend, fused_inside_window, one_dtype, rows_together
from focus_runtime.attention.scoring import Scoring
from focus_runtime.attention.sliding import WindowedFocus, sliding_attention
from focus_runtime.attention.soft import gated_attention
from focus_runtime.budget import HeadSetting
from focus_runtime.composition.added_pairs import attend_with_added
from focus_runtime.composition.cache import START_OVER, GroupHistory, check_continues, history_of, layer_of
from focus_runtime.composition.heads import (
    LayerHeads,
    by_key_head,
    head_masks,
    memberships,
    neighbours,
    query_heads,
)
from focus_runtime.composition.state import STATE, Alternatives, Comparison, FocusLayer
from focus_runtime.composition.step import FULL, attend_step, is_step
from focus_runtime.composition.text_sinks import with_text_sinks
from focus_runtime.errors import InputError, ModelError
from focus_runtime.mask.dense import token_positions
from focus_runtime.mask.extent import Extent
from focus_runtime.mask.rule import PairRule
from focus_runtime.models.structure import OTHER_MODEL, output_projection

ANY_STEP = ("reference", "masked", "decode", "fused", "flex")  # backends that take fewer queries than keys
DENSE_UP_TO = 4096  # tokens up to which training on the hard mask computes all pairs, dropped ones included


@dataclass(slots=True)
class Call:
    """One attention call: the tensors, cropped to the tokens that exist, and how scores are formed.

    Attributes:
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D).
        padding: (B, Tk) bool, True for real tokens, or None when all are.
        total: tokens of the whole text so far; more than Tk where a sliding cache dropped some.
        scoring: scale and softcap.
        dropout: probability, for the layer's own attention in training.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    padding: Tensor | None
    total: int
    scoring: Scoring
    dropout: float


def route(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Pre-hook of an attention module: find its cache layer, and decide the groups of the new tokens.

    Args:
        module, args, kwargs: as torch passes them to a forward pre-hook.
    """
    layer: FocusLayer = module.__dict__[STATE]
    owner, current = layer.owner, layer.current_pass  # looked up once: both cost time in every layer of a decode step
    current.called, current.cached, current.history = False, None, None
    if owner.paused:
        return
    cache = kwargs.get("past_key_values")
    if cache is not None:
        current.cached = layer_of(cache, layer.index)
    if owner.measuring_full or layer.router is None:
        return
    if current.cached is not None:
        current.history = history_of(current.cached)
        _check_past(layer, current.history)
    hidden = args[0] if args else kwargs["hidden_states"]
    if layer.router.config is not owner.config:  # setting an attribute of a module takes a microsecond and more
        layer.router.config = owner.config
    config, padding = owner.config, _padding(kwargs)
    with owner.seconds("routing"):
        assignment = layer.router.assign(hidden, padding=padding, assignment=config.assignment)
        if config.text_sinks is not None:
            seen = 0 if current.history is None else current.history.seen
            own = None if padding is None else padding[:, seen : seen + hidden.shape[1]]
            assignment = with_text_sinks(
                assignment, hidden, own, current.history, config, layer.index, owner.found_sinks
            )
        edit = owner.edits.get(layer.index)
        if edit is not None:
            assignment = edit.applied(assignment, 0 if current.history is None else current.history.seen, config.top_k)
        current.assignment = assignment


def _check_past(layer: FocusLayer, history: GroupHistory) -> None:
    if history.seen == 0:
        return
    if layer.owner.config.assignment == "sinkhorn":
        raise InputError(
            "assignment 'sinkhorn' cannot continue from a key-value cache: its column sums run over the whole text, "
            "which does not exist yet while decoding",
            expected="assignment='causal', or the whole text in one forward pass",
            fix='compose with assignment="causal" (see calibrate_potentials), or pass use_cache=False',
        )
    if layer.owner.soft_gate is not None:
        raise InputError(
            "a training gate cannot continue from a key-value cache",
            expected="the whole text in one forward pass",
            fix="pass use_cache=False",
        )
    check_continues(history, layer.owner.writer, layer.index)


def _padding(kwargs: dict[str, Any]) -> Tensor | None:
    mask = kwargs.get("attention_mask")
    return mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None


def check_called(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    """Hook after an attention module: check that it called `focus_forward` and did not run its own attention.

    Args:
        module, args, output: as torch passes them to a forward hook.

    Raises:
        ModelError: the module did not call transformers' attention interface.
    """
    layer: FocusLayer = module.__dict__[STATE]
    current = layer.current_pass
    current.cached, current.history = None, None  # the groups belong to the cache alone
    if not layer.owner.paused and not current.called:
        raise ModelError(
            f"{type(module).__name__} of {type(layer.owner.model).__name__} ran layer {layer.index} without calling "
            "transformers' attention interface, so Focus cannot reach it",
            fix=OTHER_MODEL,
        )


def focus_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function registered with transformers.

    Args:
        module: the attention module.
        query: (B, Hq, Tq, D) after norms and rotary embedding; key, value: (B, Hkv, Tk, D), the cache included.
        attention_mask: (B, Tk), True or 1 for real tokens; None when all are.
        scaling: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap).
        dropout: probability, for the layer's own attention in training.
        kwargs: further arguments of transformers; those that change what attention means are refused.

    Returns:
        (B, Tq, Hq, D) and no weights.
    """
    layer: FocusLayer | None = module.__dict__.get(STATE)
    if layer is None:
        raise ModelError(
            "Focus was composed onto another model that shares this model's configuration object",
            fix="give every model its own copy of the configuration, or call detach() on the other one first",
        )
    layer.current_pass.called = True
    owner = layer.owner
    _refuse_unsupported(layer, kwargs)
    if attention_mask is None and is_step(layer, query, key, value):
        scoring = Scoring(scaling if scaling is not None else query.shape[-1] ** -0.5, softcap)
        with owner.seconds("attention"):
            out_BQHD = attend_step(layer, query, key, value, scoring)
        owner.seconds.calls += 1
        return out_BQHD, None
    call = _call(layer, query, key, value, attention_mask, scaling, softcap, dropout)
    with owner.seconds("attention"):
        own = owner.measuring_full or layer.router is None
        out_BQHD = _own(module, layer, call) if own else _sparse(module, layer, call)
    owner.seconds.calls += 1
    return out_BQHD, None


def _refuse_unsupported(layer: FocusLayer, kwargs: dict[str, Any]) -> None:
    """Refuse arguments that change the attention and that Focus does not apply."""
    for name, what in (("s_aux", "learned attention sinks"), ("position_bias", "a learned position bias")):
        if kwargs.get(name) is not None:
            raise ModelError(
                f"layer {layer.index} of this model uses {what}, which Focus does not support", fix=OTHER_MODEL
            )
    requested = kwargs.get("sliding_window", layer.sliding) or None
    if requested != layer.sliding:
        raise ModelError(
            f"layer {layer.index} of this model asks for a sliding window of {requested} tokens, but its settings say "
            f"{layer.sliding}",
            fix="call detach() and compose again after changing the model",
        )


def _call(
    layer: FocusLayer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    dropout: float,
) -> Call:
    """Crop what a static cache holds beyond the text, and check that mask and keys fit."""
    if key.shape != value.shape or query.shape[3] != key.shape[3]:
        raise ModelError(
            f"layer {layer.index} has queries of size {query.shape[3]}, keys of {key.shape[3]} and values of "
            f"{value.shape[3]}, which Focus does not support",
            expected="one head size",
            fix=OTHER_MODEL,
        )
    query, key, value = one_dtype(*rows_together(query, key, value))
    total, current = key.shape[2], layer.current_pass
    if current.cached is not None:
        total = current.history.seen if current.history is not None else int(current.cached.get_seq_length())
    elif query.shape[2] != total:
        raise InputError(
            f"layer {layer.index} got {total} keys for {query.shape[2]} queries but no cache that Focus can find",
            expected="a cache passed as past_key_values",
            fix="call the model with use_cache=False",
        )
    if key.shape[2] > total:
        key, value = key[:, :, :total], value[:, :, :total]
        padding = None if padding is None else padding[:, :total]
    if padding is not None and padding.shape != (key.shape[0], key.shape[2]):
        raise InputError(
            f"attention_mask has shape {tuple(padding.shape)}",
            expected=f"{(key.shape[0], key.shape[2])}: one entry for every cached and new token",
            fix="pass the mask of the whole text, not of the new tokens alone",
        )
    scoring = Scoring(scaling if scaling is not None else query.shape[-1] ** -0.5, softcap)
    return Call(query, key, value, None if padding is None else padding.bool(), total, scoring, dropout)


def _own(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """The layer's own attention, (B, Q, H, D)."""
    if layer.sliding is None or call.key.shape[2] <= layer.sliding:
        return _full(module, call)
    out_BHQD = sliding_attention(call.query, call.key, call.value, layer.sliding, call.scoring, call.padding)
    return out_BHQD.transpose(1, 2)


def _full(module: nn.Module, call: Call) -> Tensor:
    """Full causal attention, (B, Q, H, D): torch's SDPA, or our masked attention for softcap, which SDPA lacks."""
    query, key, value, padding = call.query, call.key, call.value, call.padding
    shape = (key.shape[0], key.shape[2])
    if call.scoring.softcap is not None:
        one_group_BT = torch.ones(shape, dtype=torch.int64, device=key.device)
        rule = PairRule(window=shape[1])
        out_BHQD = attend(query, key, value, one_group_BT, rule, call.scoring, padding, backend="masked")[0]
        return out_BHQD.transpose(1, 2)
    if padding is None and 1 < query.shape[2] != shape[1]:  # SDPA aligns is_causal to the first key, not to the last
        padding = torch.ones(shape, dtype=torch.bool, device=key.device)
    mask_B1QT = None if padding is None else _causal_mask(padding, query, key)
    causal = mask_B1QT is None and query.shape[2] > 1
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    return sdpa(
        module, query, key, value, mask_B1QT, scaling=call.scoring.scale, is_causal=causal, dropout=call.dropout
    )[0]


def _causal_mask(padding_BT: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """(B, 1, Q, T) bool."""
    length_q, length_k = query.shape[2], key.shape[2]
    row_Q = torch.arange(length_k - length_q, length_k, device=query.device)
    column_T = torch.arange(length_k, device=query.device)
    causal_QT, diagonal_QT = column_T[None, :] <= row_Q[:, None], column_T[None, :] == row_Q[:, None]
    return ((causal_QT & padding_BT[:, None, :]) | diagonal_QT)[:, None]  # the diagonal keeps padded rows finite


def _sparse(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """Focus, (B, Q, H, D)."""
    if layer.owner.comparison is not None:
        return _compared(module, layer, call, layer.owner.comparison)
    out_BQHD = _executed(module, layer, call)
    if layer.owner.observer is not None:
        layer.owner.observer(layer, call, out_BQHD)
    if layer.owner.alternatives is None:
        return out_BQHD
    return _with_alternatives(module, layer, call, out_BQHD, layer.owner.alternatives)


def _compared(module: nn.Module, layer: FocusLayer, call: Call, comparison: Comparison) -> Tensor:
    """Full attention, (B, Q, H, D); the relative squared error of Focus after the output projection is noted."""
    with torch.no_grad():
        full_BQHD = _own(module, layer, call)
    project = output_projection(module)
    expected = project(full_BQHD).float().square().sum()
    error = project(_executed(module, layer, call) - full_BQHD).float().square().sum()
    comparison.errors[layer.index] = error / expected.clamp_min(torch.finfo(torch.float32).tiny)
    return full_BQHD


def _with_alternatives(
    module: nn.Module, layer: FocusLayer, call: Call, out_BQHD: Tensor, alternatives: Alternatives
) -> Tensor:
    """The same values, with a gradient for the weight of every other setting."""
    current, usual = layer.current_pass, layer.owner.config.top_k
    assert current.assignment is not None, "the pre-hook runs before attention"
    weights_SH = alternatives.of_layer(layer.index, current.num_heads, out_BQHD.device)
    executed, backend = out_BQHD.detach(), current.backend
    for setting, weight_H in zip(alternatives.settings, weights_SH, strict=True):
        with torch.no_grad():
            if setting.full:
                other_BQHD = _own(module, layer, call)
            else:
                membership_BT = memberships(current.assignment, (setting.top_k,), usual)[0]
                other_BQHD = _focused(layer, call, setting, membership_BT)
            difference = by_key_head(other_BQHD - executed, 2, current.num_heads)
        out_BQHD = out_BQHD + (difference * weight_H[:, None, None]).flatten(2, 3).to(out_BQHD.dtype)
    current.backend = backend
    return out_BQHD


def _executed(module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
    """What the settings in force give, (B, Q, H, D), pairs added by hand included."""
    current, owner = layer.current_pass, layer.owner
    current.num_heads = call.key.shape[1]
    heads = layer.heads(current.num_heads)
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
    out_BQHD = call.query.new_empty(call.query.shape).transpose(1, 2)
    backends: dict[str, None] = {}
    for group in heads.groups:
        setting = group.setting
        for part in neighbours(group.heads, copies=call.query.shape[2] > 1):
            own = _of_heads(call, part)
            if setting.full:
                current.backend, result_BQHD = FULL, _own(module, layer, own)
            else:
                groups_BT = None if groups_SBT is None else groups_SBT[heads.top_ks.index(setting.top_k)]
                result_BQHD = _focused(layer, own, setting, groups_BT)
            by_key_head(out_BQHD, 2, current.num_heads)[:, :, part] = by_key_head(result_BQHD, 2, own.key.shape[1])
            backends[current.backend] = None
    current.backend = ", ".join(backends)
    return out_BQHD


def _of_heads(call: Call, part: slice | list[int]) -> Call:
    """The same call for some of its key-value heads and the query heads that share them."""
    query = query_heads(call.query, part, call.key.shape[1])
    return replace(call, query=query, key=call.key[:, part], value=call.value[:, part])


def _focused(layer: FocusLayer, call: Call, setting: HeadSetting, membership_BT: Tensor | None) -> Tensor:
    """Focus with one setting, (B, Q, H, D); without groups in training, where gates are soft."""
    owner, current = layer.owner, layer.current_pass
    if membership_BT is None:
        return _gated(layer, call, setting).transpose(1, 2)
    rule, extent = PairRule(setting.window, owner.config.num_sinks), _extent(layer, call, setting.top_k)
    if layer.sliding is None or call.total <= layer.sliding:
        current.backend = _backend(owner.backend, call, membership_BT, rule, extent)
    else:
        whole = call.query.shape[2] == call.total  # else the cache has dropped keys, or holds more than the window
        if not whole or not fused_inside_window(owner.backend, call.query, call.key, call.value):
            current.backend = "sliding"
            focus = WindowedFocus(membership_BT, _positions(layer, call, membership_BT), rule)
            return sliding_attention(
                call.query, call.key, call.value, layer.sliding, call.scoring, call.padding, focus=focus
            ).transpose(1, 2)
        current.backend, rule = "fused", PairRule(rule.window, rule.num_sinks, layer.sliding)
    out_BHQD = attend(
        call.query,
        call.key,
        call.value,
        membership_BT,
        rule,
        call.scoring,
        call.padding,
        backend=current.backend,
        return_lse=False,
        clock=owner.seconds,
        extent=extent,
    )[0]
    return out_BHQD.transpose(1, 2)


def _extent(layer: FocusLayer, call: Call, top_k: int) -> Extent | None:
    """What is known of the groups without looking at them, which would make the host wait for a GPU."""
    assignment, config = layer.current_pass.assignment, layer.owner.config
    whole = call.query.shape[2] == call.key.shape[2]  # else a cache holds groups that another rule may have decided
    if assignment is None or not assignment.uniform or not whole:
        return None
    return Extent(config.num_groups, top_k, uniform=True)


def _backend(requested: str, call: Call, membership: Tensor, rule: PairRule, extent: Extent | None) -> str:
    continued = call.query.shape[2] < call.key.shape[2]  # where a backend chosen for prefill would refuse
    if requested != "auto" and not (continued and requested not in ANY_STEP):
        return requested
    return choose_backend(
        call.query,
        call.key,
        membership,
        window=rule.window,
        num_sinks=rule.num_sinks,
        key_padding=call.padding,
        softcap=call.scoring.softcap,
        gradient=needs_gradient(call.query, call.key, call.value),
        value=call.value,
        extent=extent,
    )


def _groups(layer: FocusLayer, call: Call, heads: LayerHeads) -> Tensor:
    """Membership of the keys at hand, (S, B, Tk); the new tokens' is stored with their keys on the way."""
    current, config = layer.current_pass, layer.owner.config
    assert current.assignment is not None, "the pre-hook runs before attention"
    new, history = memberships(current.assignment, heads.top_ks, config.top_k), current.history
    if history is None or config.assignment == "sinkhorn":
        return new  # a first pass: nothing will continue from sinkhorn groups
    count = new.shape[2]
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
    if layer.current_pass.history is None or layer.current_pass.history.first_real is None:
        return token_positions(membership, call.padding)
    count = torch.arange(call.total - call.key.shape[2], call.total, device=membership.device)
    return count - layer.current_pass.history.first_real[:, None]


def _gated(layer: FocusLayer, call: Call, setting: HeadSetting) -> Tensor:
    owner = layer.owner
    assert owner.soft_gate is not None
    assert layer.current_pass.assignment is not None
    if layer.sliding is not None and call.total > layer.sliding:
        raise ModelError(
            f"layer {layer.index} of this model attends to the last {layer.sliding} tokens only, but the training "
            f"text has {call.total}",
            expected=f"at most {layer.sliding} tokens",
            fix="train on shorter texts",
        )
    gate, rule = owner.soft_gate, PairRule(setting.window, owner.config.num_sinks)
    assignment = layer.current_pass.assignment
    plain = assignment.everywhere is None and call.scoring.softcap is None and call.padding is None
    plain = plain and call.query.device.type == "cpu"
    if gate.hard and plain and call.total > DENSE_UP_TO:
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
