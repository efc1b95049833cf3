"""What decode steps, or whole texts, of a layer on a GPU have in common: to look it up takes longer than they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focus_runtime.attention.reference import Scoring
from focus_runtime.budget import HeadCounts
from focus_runtime.composition.heads import LayerHeads
from focus_runtime.composition.reach import Reach
from focus_runtime.config import FocusConfig
from focus_runtime.mask.rule import Extent, PairRule

if TYPE_CHECKING:  # they need Triton
    from focus_runtime.attention.cuda.decoding import StepHeads
    from focus_runtime.attention.cuda.grouped import Heads
    from focus_runtime.attention.cuda.pairwise import PairHeads
    from focus_runtime.attention.cuda.tiles import HeadFactors


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """What steps of a layer have in common.

    Attributes:
        config, shape, kv_heads, device: of which steps: settings, and (B, Hq, 1, D) of their queries.
        counts: heads of the layer.
        heads: what they execute; None where the kernels take no such step.
        rule, settings: window and sinks of all heads, or what each sees.
        reach: of their windows; None where no factors act.
    """

    config: FocusConfig
    shape: torch.Size
    kv_heads: int
    device: torch.device
    counts: HeadCounts
    heads: LayerHeads | None
    rule: PairRule
    settings: StepHeads | None
    reach: Reach | None


@dataclass(frozen=True, slots=True, eq=False)
class RoutePlan:
    """Which groups are decided for the new tokens of a layer.

    Attributes:
        config, heads: of which layer: settings, and what its heads execute; None where that is not known or too much.
        looks: whether the layer looks for text sinks.
        top_ks: distinct k that are decided, those that attention asks for first.
        asked: those that attention asks for; none where that is not known.
        usual: place of the configuration's k among them.
    """

    config: FocusConfig
    heads: LayerHeads | None
    looks: bool
    top_ks: tuple[int, ...]
    asked: tuple[int, ...]
    usual: int


@dataclass(frozen=True, slots=True, eq=False)
class HeadsOnGpu:
    """What kernels read of the heads of a layer.

    Attributes:
        parts: for each distinct top-k, its place among them, and its query heads; full heads go with the first.
        focused: the same without full heads.
        every, every_focused: the query heads of all parts.
        sets, windows: int32 by query head, (H,), where heads that share a key head differ; else by key head, (G,): the
            place of the head's top-k, and its window.
        query_sets, query_windows: (H,) int32, the same by query head, always.
    """

    parts: tuple[tuple[int, Heads], ...]
    focused: tuple[tuple[int, Heads], ...]
    every: Heads
    every_focused: Heads
    sets: Tensor
    windows: Tensor
    query_sets: Tensor
    query_windows: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TextPlan:
    """What whole texts of a layer have in common, whatever their number and length.

    Attributes:
        config, own_factors, kind: of which texts: settings, (Hq,) factors of the router, and numbers of query heads
            and key heads, head sizes, scale, softcap, the backend that is asked for, types and device.
        counts: heads of the layer.
        heads: what they execute.
        scoring: scale and softcap.
        rule: sinks, how windows grow, and the window of all heads; 0 where each has its own.
        seen_whole: tokens of the longest text that all heads see, or might as well.
        most_groups: of a token, the largest k of any head.
        pairs: what each head sees, for the kernel that tests all pairs; None where all see the same.
        on_gpu: what kernels read of the heads.
        extents, extents_beyond: what is known of the groups for each k of the heads, where no tokens are in all groups
            and where some may be.
        factors: of the heads; None where none act.
        factors_from: tokens beyond which they act.
    """

    config: FocusConfig
    own_factors: Tensor | None
    kind: tuple[object, ...]
    counts: HeadCounts
    heads: LayerHeads
    scoring: Scoring
    rule: PairRule
    seen_whole: int
    most_groups: int
    pairs: PairHeads | None
    on_gpu: HeadsOnGpu
    extents: tuple[Extent, ...]
    extents_beyond: tuple[Extent, ...]
    factors: HeadFactors | None
    factors_from: float
