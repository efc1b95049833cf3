"""The short way of a decode step: one new token of a cache that Focus filled, its groups decided in its attention call.

The only work of such a layer is a few microseconds long, and calling torch for its parts takes ten times that. So the
hook that sees the hidden states only notes them (`defers`), and the attention call does the rest: on a CPU in one call
of a compiled kernel (decode_step.cpp), on a GPU, which waits for the host in a step, in three kernels: one decides the
groups for every top-k, looks for a text sink, writes both behind those of earlier tokens, and multiplies the queries by
their heads' factors; two compute attention.

Measured over whole steps: on a CPU 0.86 to 0.98 of full attention's speed (128 tokens, fp32, `default`; LOG.md,
2026-11-24), on an H100 0.73 to 0.85 with what `Plan` keeps (2026-11-27).

Shape suffixes: B batch, H query heads, Q new tokens, T all tokens, D head size, S settings, K groups, E model width.
"""

from __future__ import annotations

import ctypes
import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focus_runtime.attention.decode import DECODING
from focus_runtime.attention.fused import fused_step, step_fits
from focus_runtime.composition.cache import GroupHistory
from focus_runtime.composition.factors import acting_factors, head_factors, with_factors
from focus_runtime.composition.gpu import step_by_head
from focus_runtime.composition.heads import MOST_SETS
from focus_runtime.composition.state import Call, FocusLayer
from focus_runtime.gpu import HALVES, attention_fits, takes_hidden, tried
from focus_runtime.routing.router import (
    ELEMENTS,
    Assignment,
    CentroidRouter,
    all_groups,
    few_tokens_fit,
    top_k_membership,
)

if TYPE_CHECKING:
    from focus_runtime.attention.cuda.decoding import Sinks

# `DecodeStep` of decode_step.cpp: addresses of hidden, weights, potential, first_input, probabilities, membership and
# top_ks; element, width, groups, top_k, settings, plane_stride, place; threshold; sink, bits; seconds.
_STEP = struct.Struct("@7P7qd2qd")
_RESULTS = struct.Struct("@2qd")
DECIDING = "deciding groups"  # name of the Triton kernel in warnings
NO_SINK, SINK = torch.tensor([[False]]), torch.tensor([[True]])


def defers(layer: FocusLayer, hidden: Tensor, padding: Tensor | None) -> bool:
    """Whether the attention call may decide the groups of these tokens, (B, Q, E)."""
    owner, router, current = layer.owner, layer.router, layer.current_pass
    history, config = current.history, owner.config
    if history is None or router is None or not current.before or padding is not None or hidden.shape[:2] != (1, 1):
        return False
    if owner.modes or current.documents is not None or layer.sliding is not None or config.assignment == "sinkhorn":
        return False
    if router.observers or not router.by_centroids:
        return False
    if router.projection.dtype != torch.float32 or router.projection.is_inference():
        return False
    if config.text_sinks is not None:
        first = history.first_input
        if first is None or first.dtype != hidden.dtype or not first.is_contiguous():
            return False
    on_gpu = owner.backend in ("auto", "decode") and hidden.dtype in HALVES and takes_hidden(hidden)
    return on_gpu or (owner.backend in ("auto", "fused") and few_tokens_fit(hidden))


def decode_step(layer: FocusLayer, hidden: Tensor, call: Call) -> Tensor | None:
    """Groups of the one new token, and Focus for it, (1, 1, H, D); None, and no change, where no kernel fits."""
    history, router = layer.current_pass.history, layer.router
    assert history is not None, "see `defers`"
    assert router is not None, "see `defers`"
    place = history.length
    if not call.key.shape[2] == call.total == place + 1 or call.padding is not None or call.sinks is not None:
        return None
    step = _on_cpu if few_tokens_fit(hidden) else _on_gpu
    out_BQHD = None
    try:
        out_BQHD = step(layer, router, history, hidden, call)
    finally:
        if out_BQHD is None:
            history.length = place  # the groups of the new token may not be written
    return out_BQHD


def _on_cpu(
    layer: FocusLayer, router: CentroidRouter, history: GroupHistory, hidden: Tensor, call: Call
) -> Tensor | None:
    owner, current, config, place = layer.owner, layer.current_pass, layer.owner.config, history.length
    if not step_fits(*call.tensors):
        return None
    start = time.perf_counter()
    plan, query = layer.plan(call), with_factors(layer, call).query
    weights_EK, potential_K = router.scoring_weights(), router.potential
    probabilities_K = torch.empty(config.num_groups, dtype=torch.float32)
    looks, sink, first = config.text_sinks is not None, False, None
    if looks:
        known_BT = owner.found_sinks.before(layer.index, NO_SINK.shape, NO_SINK.device)
        sink = known_BT is not None and bool(known_BT.item())
        if layer.index >= config.text_sinks_from and place >= config.num_sinks:
            first = history.first_input
    step, groups_SBT = ctypes.create_string_buffer(_STEP.size), history.extend(1)
    tensors = (hidden, weights_EK, potential_K, first, probabilities_K, groups_SBT, plan.rules.top_ks)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
    sizes = (ELEMENTS[hidden.dtype], hidden.shape[2], config.num_groups, config.top_k, len(plan.heads.top_ks))
    _STEP.pack_into(step, 0, *addresses, *sizes, groups_SBT.stride(0), place, config.text_sinks or 0.0, sink, 0, 0.0)
    out_BQHD = fused_step(
        query, call.key, call.value, groups_SBT, plan.rules, plan.rule, call.scoring, owner.seconds, step
    )
    found, bits, routing = _RESULTS.unpack_from(step, _STEP.size - _RESULTS.size)
    if looks:
        owner.found_sinks.by_layer[layer.index] = SINK if found else NO_SINK
    everywhere = SINK if found else None
    current.assignment = Assignment(
        probabilities_K[None, None], torch.tensor([[bits]]), potential_K, exact=True, everywhere=everywhere
    )
    current.counts, current.backend = plan.counts, plan.step_backends
    owner.seconds.add("routing", routing)
    owner.seconds.add("attention", time.perf_counter() - start - routing)
    return out_BQHD


def _on_gpu(
    layer: FocusLayer, router: CentroidRouter, history: GroupHistory, hidden: Tensor, call: Call
) -> Tensor | None:
    from focus_runtime.attention.cuda.decoding import decide_on_gpu  # needs Triton

    current, config, place, clock = layer.current_pass, layer.owner.config, history.length, layer.owner.seconds
    plan = layer.plan(call)
    top_ks = plan.heads.top_ks
    if len(top_ks) > MOST_SETS or call.scoring.scale <= 0 or not attention_fits(DECODING, *call.tensors):
        return None
    factors_H, factors = acting_factors(layer), None
    if factors_H is not None and place + 1 > plan.reach.least:
        factors = head_factors(factors_H, plan.reach)
    sinks, weights_EK = _sinks_to_find(layer, history, hidden.device), router.scoring_weights()
    potential = router.potential
    sets_SBT, query = history.extend(1), call.query
    with clock("routing"):
        decided = tried(
            DECIDING,
            hidden,
            lambda: decide_on_gpu(
                hidden, weights_EK, potential, sets_SBT, place, top_ks, query, sinks=sinks, factors=factors
            ),
        )
    if decided is None:
        return None
    probabilities_K, found, scaled = decided
    with clock("attention"):
        out_BQHD = step_by_head(plan, replace(call, query=scaled), history.membership)
    if out_BQHD is None:
        return None
    layer.owner.found_sinks.note(layer.index, found)
    if config.top_k in top_ks:
        membership = sets_SBT[top_ks.index(config.top_k), :, place : place + 1].clone()
    else:
        membership = top_k_membership(probabilities_K, config.top_k)[None, None]
        if found is not None:
            membership = membership | all_groups(found, config.num_groups)
    current.assignment = Assignment(probabilities_K[None, None], membership, potential, exact=True, everywhere=found)
    current.counts, current.backend = plan.counts, "decode"
    return out_BQHD


def _sinks_to_find(layer: FocusLayer, history: GroupHistory, device: torch.device) -> Sinks | None:
    """How the kernel finds out whether the token is a text sink; None where the settings have none."""
    from focus_runtime.attention.cuda.decoding import Sinks  # needs Triton

    config = layer.owner.config
    if config.text_sinks is None:
        return None
    looks = layer.index >= config.text_sinks_from and history.length >= config.num_sinks
    known = layer.owner.found_sinks.before(layer.index, NO_SINK.shape, device)
    return Sinks(known, history.first_input if looks else None, config.text_sinks)
