"""Focus on a GPU for a layer whose heads have unequal settings, in one call for each top-k, not for each setting.

A call costs a GPU's host more than the GPU where texts are short, and gathering heads copies queries, keys and values.
The kernels therefore read which heads to compute, and the window of each query head. A head with full attention is one
whose window no text is longer than; in a long text it is computed apart, by the kernel made for it.

Shape suffixes: B batch, H query heads, Q queries, T keys, D head size, S distinct top-k.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.cuda.decomposed import GROUPED, triton_kernels
from focus_runtime.attention.decode import DECODING
from focus_runtime.attention.reference import Scoring, needs_gradient
from focus_runtime.budget import HeadCounts, query_numbers
from focus_runtime.composition.call import Call
from focus_runtime.composition.factors import head_factors
from focus_runtime.composition.gpu_plan import HeadsOnGpu, TextPlan
from focus_runtime.composition.heads import LayerHeads
from focus_runtime.composition.state import FocusLayer
from focus_runtime.gpu import attention_fits, tried
from focus_runtime.mask.rule import Extent, PairRule

if TYPE_CHECKING:  # they need Triton
    from focus_runtime.attention.cuda.grouped import Heads
    from focus_runtime.attention.cuda.tiles import HeadFactors

FULL_APART_FROM = 16384  # tokens; below, another launch costs more than the near kernel, which masks every tile (H100)
ENDLESS = (1 << 31) - 1  # a window that no text is longer than


@functools.lru_cache(maxsize=4096)
def _on_gpu(heads: LayerHeads, counts: HeadCounts, device: torch.device) -> HeadsOnGpu:
    from focus_runtime.attention.cuda.grouped import Heads  # needs Triton

    sets, windows = [0] * heads.num_heads, [0] * heads.num_heads
    members: list[list[int]] = [[] for _ in heads.top_ks]
    full: list[int] = []
    for group in heads.groups:
        setting = group.setting
        place = 0 if setting.full else heads.top_ks.index(setting.top_k)
        (full if setting.full else members[place]).extend(query_numbers(group, counts))
        for head in group.heads:
            sets[head], windows[head] = place, ENDLESS if setting.full else setting.window

    def numbers(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    together = [sorted(own + full) if place == 0 else own for place, own in enumerate(members)]
    query_sets, query_windows = (
        numbers([each for each in own for _ in range(counts.query // heads.num_heads)]) for own in (sets, windows)
    )

    def some(own: list[int]) -> Heads:
        return Heads(numbers(own), query_windows)

    return HeadsOnGpu(
        tuple((place, some(own)) for place, own in enumerate(together) if own),
        tuple((place, some(own)) for place, own in enumerate(members) if own),
        some(sorted(itertools.chain(*together))),
        some(sorted(itertools.chain(*members))),
        numbers(sets),
        numbers(windows),
        query_sets,
        query_windows,
    )


def settings_of(heads: LayerHeads, counts: HeadCounts, device: torch.device) -> tuple[Tensor, Tensor]:
    """Places of the top-k and windows of a layer's heads, as `StepHeads` has them.

    Args:
        heads, counts: of the layer.
        device: of its queries.
    """
    known = _on_gpu(heads, counts, device)
    return known.sets, known.windows


def fits(what: str, backend: str, call: Call) -> bool:
    """Whether kernels take the call with all its heads.

    Args:
        what: `GROUPED` for a whole text, `DECODING` for its newest token.
        backend: the one that is asked for.
        call: of the layer.
    """
    return call.padding is None and takes(what, backend, call.query, call.key, call.value, call.scoring.scale)


def takes(what: str, backend: str, query: Tensor, key: Tensor, value: Tensor, scale: float) -> bool:
    """The same of a call without padding.

    Args:
        what, backend: as in `fits`.
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D).
        scale: factor on the scores.
    """
    return (
        scale > 0
        and backend in ("auto", "decomposed" if what == GROUPED else "decode")
        and attention_fits(what, query, key, value)
        and not needs_gradient(query, key, value)
    )


def text_plan(
    layer: FocusLayer, query: Tensor, key: Tensor, value: Tensor, scale: float, softcap: float | None
) -> TextPlan | None:
    """What the kernels need to know of a whole text without padding; None where they do not take it.

    It is kept from one text to the next: to look everything up takes longer than to compute a short one.

    Args:
        layer: of the call.
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        scale: factor on the scores.
        softcap: as in `Scoring`.
    """
    assert layer.router is not None, "layers without a router keep their own attention"
    plan, owner, factors_H = layer.text_plan, layer.owner, layer.router._parameters["logit_factors"]
    (_, num_query, _, size), (_, num_key, _, key_size) = query.shape, key.shape
    types = (query.dtype, key.dtype, value.dtype, query.device)
    kind = (num_query, num_key, size, key_size, scale, softcap, owner.backend, types)
    if plan is None or plan.config is not owner.config or plan.own_factors is not factors_H or plan.kind != kind:
        if not takes(GROUPED, owner.backend, query, key, value, scale):
            return None
        layer.text_plan = plan = _planned(layer, factors_H, kind)
    elif not query.stride()[3] == key.stride()[3] == value.stride()[3] == 1 or needs_gradient(query, key, value):
        return None
    return plan


def _planned(layer: FocusLayer, factors_H: Tensor | None, kind: tuple[Any, ...]) -> TextPlan:
    from focus_runtime.attention.cuda.pairwise import PairHeads  # needs Triton

    config, (num_query, num_key, _, _, scale, softcap, _, types) = layer.owner.config, kind
    counts, device = HeadCounts(num_key, num_query), types[-1]
    heads = layer.heads(counts)
    known = _on_gpu(heads, counts, device)
    window, seen_whole = 0, ENDLESS if heads.groups == heads.full else 0
    if heads.uniform:
        setting = heads.groups[0].setting
        window, seen_whole = setting.window, ENDLESS if setting.top_k >= config.num_groups else setting.window + 1
    reach = layer.reach(heads, counts, device) if config.logit_factors and factors_H is not None else None
    return TextPlan(
        config,
        factors_H,
        kind,
        counts,
        heads,
        Scoring(scale, softcap),
        PairRule.of(config, window),
        seen_whole,
        max(heads.top_ks),
        None if heads.uniform else PairHeads(known.query_sets, known.query_windows),
        known,
        _extents(heads, config.num_groups, beyond=False),
        _extents(heads, config.num_groups, beyond=True),
        None if reach is None or factors_H is None else head_factors(factors_H, reach),
        math.inf if reach is None else reach.least,
    )


def _extents(heads: LayerHeads, num_groups: int, *, beyond: bool) -> tuple[Extent, ...]:
    return tuple(extent_of(top_k, num_groups, beyond=beyond) for top_k in heads.top_ks)


def extent_of(top_k: int, num_groups: int, *, beyond: bool) -> Extent:
    """What is known of groups that a router decided, and nobody edited.

    Args:
        top_k: k.
        num_groups: K.
        beyond: whether some tokens may be in all groups.
    """
    if top_k == 0:
        return Extent(num_groups, 0, uniform=True)
    return Extent(num_groups, top_k, uniform=not beyond, beyond=beyond)


def step_by_head(call: Call, heads: LayerHeads, groups_SBT: Tensor, rule: PairRule) -> Tensor | None:
    """The newest token's output, (B, 1, H, D); None where the kernel failed.

    Args:
        call: for which `fits` says yes.
        heads: of the layer.
        groups_SBT: int64 bit sets by distinct top-k of the layer.
        rule: sinks and how windows grow; the windows are those of the heads.
    """
    from focus_runtime.attention.cuda.decoding import StepHeads, decode_on_gpu  # needs Triton

    query, key = call.query, call.key
    settings = StepHeads(*settings_of(heads, call.counts, query.device))
    groups_SBT = groups_SBT if groups_SBT.stride(-1) == 1 else groups_SBT.contiguous()

    def run() -> tuple[Tensor, Tensor]:
        return decode_on_gpu(query, key, call.value, groups_SBT, rule, call.scoring, settings)

    result = tried(DECODING, query, run)
    return None if result is None else result[0].transpose(1, 2)


def are_apart(query: Tensor) -> bool:
    """Whether heads with full attention are left to the kernel made for it.

    Args:
        query: (B, H, T, D), of a whole text.
    """
    return query.shape[2] >= FULL_APART_FROM


def text_by_head(
    plan: TextPlan,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    groups_BT: Sequence[Tensor],
    extents: Sequence[Extent],
    clock: StageClock,
) -> tuple[Tensor, bool] | None:
    """A whole text's output, (B, T, H, D), and whether full heads are in it, whose rows are else left as they are.

    Args:
        plan: of the layer.
        query, key, value: (B, H, T, D) of a call for which `fits` says yes.
        groups_BT: int64 bit sets for each distinct top-k of the layer.
        extents: what is known of each of them.
        clock: times the stages.

    Returns:
        None where the kernel failed.
    """
    (kernels, _), apart = triton_kernels(), are_apart(query)
    heads, rule, scoring = plan.on_gpu, plan.rule, plan.scoring

    def run() -> Tensor:
        if plan.heads.uniform:
            inputs = (query, key, value, groups_BT[0], rule, scoring)
            return kernels.grouped_attention(*inputs, extent=extents[0], stage=clock)[0].transpose(1, 2)
        results, parts = kernels.new_results(query), heads.focused if apart else heads.parts

        def attend(own: Heads, place: int, extent: Extent, *, near_known: bool) -> None:
            kernels.grouped_attention(
                query,
                key,
                value,
                groups_BT[place],
                rule,
                scoring,
                extent=extent,
                stage=clock,
                heads=own,
                results=results,
                near_known=near_known,
            )

        together = len(parts) > 1  # near pairs have nothing to do with groups: of all parts they are one launch
        if together:
            every = heads.every_focused if apart else heads.every
            attend(every, 0, Extent(extents[0].num_groups, 0, uniform=True), near_known=False)
        for place, own in parts:
            if not together or extents[place].top_k > 0:
                attend(own, place, extents[place], near_known=together)
        return results[0]

    out_BTHD = tried(GROUPED, query, run)
    return None if out_BTHD is None else (out_BTHD, not apart)


def short_pays(plan: TextPlan, query: Tensor) -> bool:
    """Whether to test all pairs of a whole text in one call takes less time than its groups take, or torch's kernels.

    Args:
        plan: of the layer.
        query: (B, H, T, D) of a call for which `fits` says yes.
    """
    if query.shape[2] <= plan.seen_whole:
        return False
    return triton_kernels()[1].pairwise_pays(query, plan.config.num_groups, plan.most_groups)


def short_by_head(
    plan: TextPlan,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    groups_SBT: Tensor,
    factors: HeadFactors | None,
    clock: StageClock,
) -> Tensor | None:
    """A whole short text's output for all heads, (B, T, H, D); None where the kernel failed.

    Args:
        plan: of the layer, for which `short_pays` says yes.
        query, key, value: (B, H, T, D) of a call for which `fits` says yes, the queries not yet multiplied.
        groups_SBT: int64 bit sets by distinct top-k of the layer and maybe others after them, of no bits from K on.
        factors: of the query heads; None for none.
        clock: times the stages.
    """
    (_, kernels), num_groups = triton_kernels(), plan.config.num_groups
    groups_SBT = groups_SBT if groups_SBT.stride(-1) == 1 else groups_SBT.contiguous()

    def run() -> Tensor:
        return kernels.pairwise_attention(
            query,
            key,
            value,
            groups_SBT,
            plan.rule,
            plan.scoring,
            num_groups=num_groups,
            heads=plan.pairs,
            factors=factors,
            stage=clock,
        )

    return tried(GROUPED, query, run)
