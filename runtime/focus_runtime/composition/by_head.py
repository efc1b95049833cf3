"""Focus on a GPU for a layer whose heads have unequal settings, in one call for each top-k, not for each setting.

A call costs a GPU's host more than the GPU where texts are short, and gathering heads copies queries, keys and values.
The kernels therefore read which heads to compute, and the window of each query head. A head with full attention is one
whose window no text is longer than; in a long text it is computed apart, by the kernel made for it.

Shape suffixes: B batch, H query heads, Q queries, T keys, D head size, S distinct top-k.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from focus_runtime.attention.checks import needs_gradient
from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.cuda.decomposition import GROUPED
from focus_runtime.attention.decode import DECODING
from focus_runtime.budget import HeadCounts, query_numbers
from focus_runtime.composition.call import Call
from focus_runtime.composition.factors import head_factors
from focus_runtime.composition.heads import LayerHeads
from focus_runtime.composition.reach import Reach
from focus_runtime.gpu.usable import attention_fits, tried
from focus_runtime.mask.extent import Extent
from focus_runtime.mask.rule import PairRule

FULL_APART_FROM = 16384  # tokens; below, another launch costs more than the near kernel, which masks every tile (H100)
ENDLESS = (1 << 31) - 1  # a window that no text is longer than


@dataclass(frozen=True, slots=True)
class _OnGpu:
    """What kernels read of the heads of a layer.

    Attributes:
        parts: for each distinct top-k, its place among them, and the numbers of its query heads; full heads go with the
            first.
        focused: the same without full heads.
        every, every_focused: numbers of the query heads of all parts.
        sets, windows: int32 by query head, (H,), where heads that share a key head differ; else by key head, (G,): the
            place of the head's top-k, and its window.
        query_sets, query_windows: (H,) int32, the same by query head, always.
    """

    parts: tuple[tuple[int, Tensor], ...]
    focused: tuple[tuple[int, Tensor], ...]
    every: Tensor
    every_focused: Tensor
    sets: Tensor
    windows: Tensor
    query_sets: Tensor
    query_windows: Tensor


@functools.lru_cache(maxsize=4096)
def _on_gpu(heads: LayerHeads, counts: HeadCounts, device: torch.device) -> _OnGpu:
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
    return _OnGpu(
        tuple((place, numbers(own)) for place, own in enumerate(together) if own),
        tuple((place, numbers(own)) for place, own in enumerate(members) if own),
        numbers(sorted(itertools.chain(*together))),
        numbers(sorted(itertools.chain(*members))),
        numbers(sets),
        numbers(windows),
        *(numbers([each for each in own for _ in range(counts.query // heads.num_heads)]) for own in (sets, windows)),
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
    tensors = (call.query, call.key, call.value)
    name = "decomposed" if what == GROUPED else "decode"
    return (
        call.padding is None
        and call.scoring.scale > 0
        and backend in ("auto", name)
        and attention_fits(what, *tensors)
        and not needs_gradient(*tensors)
    )


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


def text_by_head(
    call: Call,
    heads: LayerHeads,
    groups_SBT: Tensor,
    extents: list[Extent],
    rule: PairRule,
    clock: StageClock,
) -> tuple[Tensor, bool] | None:
    """A whole text's output, (B, T, H, D), and whether full heads are in it, whose rows are else left as they are.

    Args:
        call: for which `fits` says yes.
        heads: of the layer.
        groups_SBT: int64 bit sets by distinct top-k of the layer.
        extents: what is known of each of them.
        rule: sinks and how windows grow; the windows are those of the heads.
        clock: times the stages.

    Returns:
        None where the kernel failed.
    """
    from focus_runtime.attention.cuda.grouped import Heads, grouped_attention, new_results  # needs Triton

    query, key = call.query, call.key
    known = _on_gpu(heads, call.counts, query.device)
    apart = query.shape[2] >= FULL_APART_FROM

    def run() -> Tensor:
        results, parts = new_results(query), known.focused if apart else known.parts

        def attend(numbers: Tensor, place: int, extent: Extent, *, near_known: bool) -> None:
            tensors, heads_asked = (query, key, call.value), Heads(numbers, known.query_windows)
            settings: dict[str, Any] = {"extent": extent, "stage": clock, "heads": heads_asked, "results": results}
            given = (*tensors, groups_SBT[place], rule, call.scoring)
            grouped_attention(*given, near_known=near_known, **settings)

        together = len(parts) > 1  # near pairs have nothing to do with groups: of all parts they are one launch
        if together:
            every = known.every_focused if apart else known.every
            attend(every, 0, Extent(extents[0].num_groups, 0, uniform=True), near_known=False)
        for place, numbers in parts:
            if not together or extents[place].top_k > 0:
                attend(numbers, place, extents[place], near_known=together)
        return results[0]

    out_BTHD = tried(GROUPED, query, run)
    return None if out_BTHD is None else (out_BTHD, not apart)


def short_pays(call: Call, heads: LayerHeads, num_groups: int) -> bool:
    """Whether to test all pairs of a whole text in one call takes less time than its groups take.

    Args:
        call: for which `fits` says yes.
        heads: of the layer.
        num_groups: K.
    """
    from focus_runtime.attention.cuda.pairwise import pairwise_pays  # needs Triton

    return pairwise_pays(call.query, num_groups, max(heads.top_ks))


def short_by_head(
    call: Call,
    heads: LayerHeads,
    groups_SBT: Tensor,
    num_groups: int,
    rule: PairRule,
    factors: tuple[Tensor, Reach] | None,
    clock: StageClock,
) -> Tensor | None:
    """A whole short text's output for all heads, (B, T, H, D); None where the kernel failed.

    Args:
        call: for which `fits` and `short_pays` say yes, its queries not yet multiplied.
        heads: of the layer.
        groups_SBT: int64 bit sets by distinct top-k of the layer, of no bits from K on.
        num_groups: K.
        rule: sinks and how windows grow; the windows are those of the heads.
        factors: of the query heads, and how far their windows reach; None for none.
        clock: times the stages.
    """
    from focus_runtime.attention.cuda.pairwise import PairHeads, pairwise_attention

    known = _on_gpu(heads, call.counts, call.query.device)
    groups_SBT = groups_SBT if groups_SBT.stride(-1) == 1 else groups_SBT.contiguous()
    window, settings = heads.groups[0].setting.window, None
    if not heads.uniform:
        window, settings = 0, PairHeads(known.query_sets, known.query_windows)

    def run() -> Tensor:
        out_BHTD = pairwise_attention(
            call.query,
            call.key,
            call.value,
            groups_SBT,
            replace(rule, window=window),
            call.scoring,
            num_groups=num_groups,
            heads=settings,
            factors=None if factors is None else head_factors(*factors),
            stage=clock,
        )
        return out_BHTD.transpose(1, 2)

    return tried(GROUPED, call.query, run)
