"""Whole texts on a GPU in few kernels: groups by the router for every top-k of the heads, text sinks, and attention.

A GPU waits for the host in short texts, and what is decided by several kernels, or looked up in every layer, takes the
host longer. So what texts of a layer have in common is kept (gpu_plan.py).

Shape suffixes: B batch, H query heads, T new tokens, D head size, E model width, S distinct top-k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focus_runtime.attention.cuda.decomposed import grouped_fits
from focus_runtime.composition.by_head import are_apart, short_by_head, short_pays, text_by_head, text_plan
from focus_runtime.composition.cache import GroupHistory
from focus_runtime.composition.factors import kernels_read, multiplied
from focus_runtime.composition.gpu_plan import RoutePlan, TextPlan
from focus_runtime.composition.heads import MOST_SETS
from focus_runtime.composition.state import DecidedText, FocusLayer, is_plain
from focus_runtime.gpu import tried
from focus_runtime.routing.router import ROUTING, routing_kernels

if TYPE_CHECKING:
    from focus_runtime.routing.on_gpu import TextSinks

MOST_TOKENS = 1 << 17  # for which groups by every top-k are decided before attention asks: they are kept until the end


def decided_on_gpu(layer: FocusLayer, hidden: Tensor, padding: Tensor | None) -> DecidedText | None:
    """What the router decides for new tokens, text sinks in all groups; None where the kernel does not take the call.

    Args:
        layer: of the call, its history found.
        hidden: (B, T, E), its input.
        padding: (B, T) bool, or None where all tokens are real.
    """
    owner, router, history = layer.owner, layer.router, layer.current_pass.history
    config = owner.config
    assert router is not None, "only layers with a router are routed"
    if (
        padding is not None
        or config.assignment != "causal"
        or owner.edits.get(layer.index) is not None
        or not router.routes_on_gpu(hidden)
    ):
        return None
    seen, sinks = 0 if history is None else history.seen, None
    if config.text_sinks is not None and history is not None:
        if seen == 0:
            history.first_input = torch.select_copy(hidden, 1, 0)
        elif history.first_input is None or history.first_input.dtype != hidden.dtype:
            return None
    plan = _route_plan(layer, hidden)
    if plan.looks:
        sinks = _sinks(layer, hidden, history, seen)
    weights_EK, potential = router.scoring_weights(), router.potential
    result = tried(
        ROUTING, hidden, lambda: routing_kernels().route_on_gpu(hidden, weights_EK, potential, plan.top_ks, sinks)
    )
    if result is None:
        return None
    probabilities_BTK, sets_SBT, found_BT = result
    if found_BT is not None:
        owner.found_sinks.by_layer[layer.index] = found_BT
    elif config.text_sinks is not None:
        owner.found_sinks.by_layer.pop(layer.index, None)  # of an earlier pass
    return DecidedText(probabilities_BTK, sets_SBT, found_BT, potential, plan)


def _route_plan(layer: FocusLayer, hidden: Tensor) -> RoutePlan:
    """What to decide: every top-k that attention will ask for, where that is known and not too much."""
    plan, config, heads = layer.route_plan, layer.owner.config, layer.known_heads
    if hidden.shape[0] * hidden.shape[1] > MOST_TOKENS:
        heads = None
    if plan is None or plan.config is not config or plan.heads is not heads:
        asked = () if heads is None or len(heads.top_ks) >= MOST_SETS else heads.top_ks
        top_ks = asked or (config.top_k,)
        if config.top_k not in top_ks:
            top_ks = (*top_ks, config.top_k)
        looks = config.text_sinks is not None and layer.index >= config.text_sinks_from
        layer.route_plan = plan = RoutePlan(config, heads, looks, top_ks, asked, top_ks.index(config.top_k))
    return plan


def _sinks(layer: FocusLayer, hidden: Tensor, history: GroupHistory | None, seen: int) -> TextSinks:
    owner, shape, padding_B = layer.owner, hidden.shape[:2], None
    config = owner.config
    assert config.text_sinks is not None, "the layer looks"
    known_BT = owner.found_sinks.known_before(layer.index, shape, hidden.device)
    if known_BT is not None and not known_BT.is_contiguous():
        known_BT = known_BT.contiguous()
    first_BE = None if history is None else history.first_input
    if first_BE is None:
        first_BE = hidden if shape[0] == 1 else hidden[:, 0].contiguous()  # one text begins with it
    elif seen:
        assert history is not None, "it has the first input"
        first_BE, padding_B = first_BE.to(hidden.device).contiguous(), history.first_real
    return routing_kernels().TextSinks(first_BE, known_BT, config.text_sinks, config.num_sinks - seen, padding_B)


def text_on_gpu(
    layer: FocusLayer,
    decided: DecidedText,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    softcap: float | None,
) -> Tensor | None:
    """Focus of a whole text.

    Args:
        layer: of the call.
        decided: the groups of its tokens.
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D), no token of which is padding.
        scaling: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap).

    Returns:
        (B, T, Hq, D), or None where the kernels do not take the call or fail, or where more than the output is asked
        for; nothing is changed then.
    """
    owner, current, length = layer.owner, layer.current_pass, query.shape[2]
    history = current.history
    if (
        key.shape[2] != length
        or value.shape != key.shape
        or not (history is None or history.length == 0 < history.seen == length)
        or (layer.sliding is not None and length > layer.sliding)
        or not is_plain(owner)
    ):
        return None
    plan = text_plan(layer, query, key, value, scaling if scaling is not None else query.shape[3] ** -0.5, softcap)
    if plan is None or decided.plan.asked != plan.heads.top_ks:
        return None
    with owner.seconds("attention"):
        if short_pays(plan, query):
            out_BTHD = _short(layer, plan, decided, query, key, value)
        else:
            out_BTHD = _by_groups(layer, plan, decided, query, key, value)
    if out_BTHD is None:
        if history is not None:
            history.length = 0  # the groups are added again
        return None
    current.counts, current.backend = plan.counts, "decomposed"
    return out_BTHD


def _short(
    layer: FocusLayer, plan: TextPlan, decided: DecidedText, query: Tensor, key: Tensor, value: Tensor
) -> Tensor | None:
    factors = plan.factors if query.shape[2] > plan.factors_from else None
    if factors is not None and not kernels_read(factors.factors):
        return None
    _keep(layer, decided)
    return short_by_head(plan, query, key, value, decided.sets, factors, layer.owner.seconds)


def _by_groups(
    layer: FocusLayer, plan: TextPlan, decided: DecidedText, query: Tensor, key: Tensor, value: Tensor
) -> Tensor | None:
    length = query.shape[2]
    if are_apart(query) or length <= plan.seen_whole:
        return None
    if plan.heads.uniform and not grouped_fits(query, key, value, plan.rule.near(length - 1), plan.scoring):
        return None
    if plan.factors is not None and length > plan.factors_from:
        scaled = multiplied(query, plan.factors, length, layer.sliding) if kernels_read(plan.factors.factors) else None
        if scaled is None:
            return None
        query = scaled
    _keep(layer, decided)
    extents = plan.extents if decided.found is None else plan.extents_beyond
    found = text_by_head(plan, query, key, value, decided.sets.unbind(), extents, layer.owner.seconds)
    return None if found is None else found[0]


def _keep(layer: FocusLayer, decided: DecidedText) -> None:
    """Store a text's groups with its keys."""
    history = layer.current_pass.history
    if history is not None:
        history.begin(decided.asked, layer.owner.writer)
