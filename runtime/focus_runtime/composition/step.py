"""One decode step of a layer: the newest tokens of a cache that Focus filled, in one call of a compiled kernel.

A single new token is the usual case, and the only work of its layers is then a few microseconds long. So the hook that
sees its hidden states only notes them (`defers`), and the attention call decides its groups on the way
(`decide_and_attend`, decode_step.cpp). Several tokens have had their groups decided before (`attend_step`).

Shape suffixes: B batch, H query heads, Q new tokens, T all tokens, D head size, S settings, K groups.
"""

from __future__ import annotations

import ctypes
import struct
import time

import torch
from torch import Tensor

from focus_runtime.attention.fused import fused_step, step_fits
from focus_runtime.attention.reference import Scoring
from focus_runtime.composition.gpu_step import takes
from focus_runtime.composition.heads import LayerHeads, counts_of, memberships
from focus_runtime.composition.state import Decided, FocusLayer, is_plain
from focus_runtime.composition.text_sinks import NO_SINK, SINK
from focus_runtime.routing.router import ELEMENTS, few_tokens_fit

# `DecodeStep` of decode_step.cpp: addresses of hidden, weights, potential, first_input, probabilities, membership and
# top_ks; element, width, groups, top_k, settings, plane_stride, place; threshold; sink, bits; seconds.
_STEP = struct.Struct("@7P7qd2qd")
_RESULTS = struct.Struct("@2qd")
BACKENDS = ("auto", "fused")


def _is_plain(layer: FocusLayer) -> bool:
    """Whether nothing but the layer's own settings decides what a step computes."""
    owner = layer.owner
    return (
        layer.router is not None and layer.sliding is None and is_plain(owner) and owner.config.assignment != "sinkhorn"
    )


def defers(layer: FocusLayer, hidden: Tensor, padding: Tensor | None) -> bool:
    """Whether the groups of these tokens may be decided by their attention call: one new token that `fits`.

    Args:
        layer: of the call, its history found.
        hidden: (B, Q, E), its input.
        padding: (B, T) bool, or None where all tokens are real.
    """
    history, router = layer.current_pass.history, layer.router
    if history is None or router is None or padding is not None or not history.seen or hidden.shape[:2] != (1, 1):
        return False
    if (
        router.observers
        or not router.by_centroids
        or layer.owner.edits.get(layer.index) is not None
        or not _is_plain(layer)
    ):
        return False
    if router.projection.dtype != torch.float32 or router.projection.is_inference():
        return False
    if layer.owner.config.text_sinks is not None:
        first = history.first_input
        if first is None or first.dtype != hidden.dtype or not first.is_contiguous():
            return False
    return (layer.owner.backend in BACKENDS and few_tokens_fit(hidden)) or takes(hidden, layer)


def is_step(layer: FocusLayer, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether these are the newest tokens of a cache that Focus filled, which one call of the fused kernel takes.

    What goes another way is judged there, such as a layer's own sliding window.

    Args:
        layer: of the call.
        query: (B, Hq, Q, D); key, value: (B, Hkv, T, D), the cache included; a static one has room for more tokens.
    """
    current = layer.current_pass
    history = current.history
    if history is None or layer.owner.backend not in BACKENDS:
        return False
    if current.hidden is None and not _is_plain(layer):  # else `defers` has asked
        return False
    seen, new = history.seen, query.shape[2]
    return key.shape[2] >= seen == history.length + new > new and step_fits(query, key, value)


def attend_step(layer: FocusLayer, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
    """Focus for the newest tokens, whose groups are decided: all heads in one call, those with full attention too.

    Args:
        layer, query, key, value: as in `is_step`, which returned True.
        scoring: scale and softcap.

    Returns:
        (B, Q, H, D).
    """
    owner, current = layer.owner, layer.current_pass
    assert current.assignment is not None, "the pre-hook runs before attention"
    assert current.history is not None, "see `is_step`"
    heads = _heads_of(layer, query, key)
    new_SBT = memberships(current.assignment, heads.top_ks, owner.config.top_k)
    current.history.append(new_SBT, None, owner.writer)
    groups_SBT, sees, seen = current.history.membership, layer.step_heads(heads), current.history.seen
    with owner.seconds("attention"):
        return fused_step(
            query, key, value, groups_SBT, sees, layer.step_rule(heads), scoring, owner.seconds, key_length=seen
        )


def decide_and_attend(
    layer: FocusLayer, hidden: Tensor, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring
) -> Tensor:
    """Groups of the one new token and Focus for it, together.

    Args:
        layer, query, key, value: as in `is_step`, which returned True.
        hidden: (1, 1, E) input of the layer, for which `defers` returned True.
        scoring: scale and softcap.

    Returns:
        (B, Q, H, D).
    """
    owner, current, config = layer.owner, layer.current_pass, layer.owner.config
    history, router = current.history, layer.router
    assert history is not None, "see `defers`"
    assert router is not None, "see `defers`"
    start = time.perf_counter()
    heads, place = _heads_of(layer, query, key), history.length
    sees = layer.step_heads(heads)
    weights_EK, potential_K = router.scoring_weights(), router.potential
    probabilities_K = torch.empty(config.num_groups, dtype=torch.float32)
    looks = config.text_sinks is not None
    sink = looks and layer.owner.found_sinks.was_found(layer.index)
    first = (
        history.first_input if looks and layer.index >= config.text_sinks_from and place >= config.num_sinks else None
    )
    step, groups_SBT = ctypes.create_string_buffer(_STEP.size), history.extend(1)
    _STEP.pack_into(
        step,
        0,
        hidden.data_ptr(),
        weights_EK.data_ptr(),
        potential_K.data_ptr(),
        0 if first is None else first.data_ptr(),
        probabilities_K.data_ptr(),
        groups_SBT.data_ptr(),
        sees.top_ks.data_ptr(),
        ELEMENTS[hidden.dtype],
        hidden.shape[2],
        config.num_groups,
        config.top_k,
        len(heads.top_ks),
        groups_SBT.stride(0),
        place,
        config.text_sinks or 0.0,
        sink,
        0,
        0.0,
    )
    try:
        out_BQHD = fused_step(
            query, key, value, groups_SBT, sees, layer.step_rule(heads), scoring, owner.seconds, step, history.seen
        )
    except BaseException:
        history.length = place  # the groups of the new token were not written
        raise
    found, bits, routing = _RESULTS.unpack_from(step, _STEP.size - _RESULTS.size)
    if looks:
        owner.found_sinks.by_layer[layer.index] = SINK if found else NO_SINK
    current.decided = Decided(probabilities_K, bits, bool(found), potential_K)
    owner.seconds.add("routing", routing)
    owner.seconds.add("attention", time.perf_counter() - start - routing)
    return out_BQHD


def _heads_of(layer: FocusLayer, query: Tensor, key: Tensor) -> LayerHeads:
    """What the heads of a call execute; noted with the backends that do."""
    current = layer.current_pass
    current.counts = counts_of(query, key)
    heads = layer.heads(current.counts)
    current.backend = layer.step_backends(heads)
    return heads
