"""What calls of a layer have in common, looked up once: its heads by setting, as kernels read them.

To look it up in every call takes longer than a short call does: with it kept, and kernels launched by a few lines of C,
a decode step on an H100 went from 0.73 to 0.85 of full attention's speed, and a text of 1,024 tokens from 0.76 to 0.94
(LOG.md, 2026-11-27).

Shape suffixes: B batch, H query heads, G key-value heads, T tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focus_runtime.attention.fused import HeadRules
from focus_runtime.budget import HeadCounts, HeadGroup, query_numbers, query_settings
from focus_runtime.composition.heads import EVERYTHING, LayerHeads, Part, layer_heads, part_of
from focus_runtime.config import CONSTANT, FocusConfig
from focus_runtime.mask.rule import PairRule

if TYPE_CHECKING:  # they need Triton
    from focus_runtime.attention.cuda.grouped import Heads
    from focus_runtime.attention.cuda.tiles import HeadSets

FULL = "full attention"  # named with the backends, for heads whose budget gives them that
ENDLESS = (1 << 31) - 1  # a window in int32 that no text is longer than


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the windows of a layer's query heads reach.

    Attributes:
        acts: (H,) 1, or 0 for a head with full attention.
        tokens: (H,) tokens within the window before it grows, the query's own among them; 0 with full attention.
        least: fewest of these tokens among heads that have a window; infinite where none has.
        growth: first and last position of the windows' growth.
    """

    acts: Tensor
    tokens: Tensor
    least: float
    growth: tuple[int, int] = CONSTANT

    def beyond(self, visible_BT: Tensor, position_BT: Tensor) -> Tensor:
        """Share of the tokens up to each query's own that its layer reaches, at least 1, which lies beyond each head's
        window, (B, H, T)."""
        grown_BT = position_BT.clamp(*self.growth) / self.growth[0]
        return (self.acts[:, None] - self.tokens[:, None] * (grown_BT / visible_BT)[:, None]).clamp_min(0)


def reach_of(groups: Sequence[HeadGroup], counts: HeadCounts, config: FocusConfig, device: torch.device) -> Reach:
    """The reach of all heads of a layer, given by setting."""
    tokens = [0 if setting.full else setting.window + 1 for setting in query_settings(groups, counts)]
    tokens_H = torch.tensor(tokens, dtype=torch.float32, device=device)
    least = min((number for number in tokens if number), default=math.inf)
    return Reach((tokens_H > 0).float(), tokens_H, least, config.growth)


@dataclass(frozen=True, slots=True, eq=False)
class HeadsOnGpu:
    """What kernels in Triton read of the heads of a layer.

    Attributes:
        parts: for each distinct top-k, its place among them, and its query heads; full heads go with the first.
        step, pairs: membership and window of each head, for decode steps and for the kernel that tests all pairs.
    """

    parts: tuple[tuple[int, Heads], ...]
    focused: tuple[tuple[int, Heads], ...]
    every: Heads
    every_focused: Heads
    step: HeadSets
    pairs: HeadSets


class Plan:
    """What the heads of a layer execute under one configuration, in calls with these numbers of heads on one device."""

    def __init__(self, layer: int, config: FocusConfig, counts: HeadCounts, device: torch.device) -> None:
        self.config, self.counts, self.device = config, counts, device
        self.heads: LayerHeads = layer_heads(config, layer, counts)

    @cached_property
    def parts(self) -> tuple[tuple[HeadGroup, Part], ...]:
        """The groups of heads, and how queries and keys are indexed for them."""
        return tuple((group, part_of(group, self.counts)) for group in self.heads.groups)

    @cached_property
    def rule(self) -> PairRule:
        """Sinks, how windows grow, and the window of all heads; 0 where each has its own."""
        return PairRule.of(self.config, self.heads.groups[0].setting.window if self.heads.uniform else 0)

    @cached_property
    def reach(self) -> Reach:
        """How far the windows of the heads reach."""
        return reach_of(self.heads.groups, self.counts, self.config, self.device)

    @cached_property
    def seen_whole(self) -> int:
        """Tokens of the longest text that all heads see wholly."""
        if self.heads.groups == self.heads.full:
            return ENDLESS
        if not self.heads.uniform:
            return 0
        setting = self.heads.groups[0].setting
        return ENDLESS if setting.top_k >= self.config.num_groups else setting.window + 1

    @cached_property
    def rules(self) -> HeadRules:
        """What each head sees, for the compiled kernel."""
        return self._rules(())

    @cached_property
    def step_backends(self) -> str:
        """What runs a decode step that the compiled kernel takes with all its heads."""
        return ", ".join(dict.fromkeys(FULL if group.setting.full else "fused" for group in self.heads.groups))

    @cached_property
    def rules_without_full(self) -> HeadRules:
        """The same, heads with full attention left out."""
        return self._rules(self.heads.full)

    def _rules(self, without: tuple[HeadGroup, ...]) -> HeadRules:
        heads = self.heads
        number = {head: place for place, group in enumerate(heads.groups) for head in group.heads}
        number |= {head: -1 for group in without for head in group.heads}
        settings = [group.setting for group in heads.groups]
        return HeadRules(
            [number[head] for head in range(heads.num_heads)],
            [0 if each.full else heads.top_ks.index(each.top_k) for each in settings],
            [EVERYTHING if each.full else each.window for each in settings],
            heads.top_ks,
        )

    @cached_property
    def on_gpu(self) -> HeadsOnGpu:
        """What kernels in Triton read of the heads."""
        from focus_runtime.attention.cuda.grouped import Heads  # these need Triton
        from focus_runtime.attention.cuda.tiles import HeadSets

        heads = self.heads
        sets, windows = [0] * heads.num_heads, [0] * heads.num_heads
        members: list[list[int]] = [[] for _ in heads.top_ks]
        full: list[int] = []
        for group in heads.groups:
            setting = group.setting
            place = 0 if setting.full else heads.top_ks.index(setting.top_k)
            (full if setting.full else members[place]).extend(query_numbers(group, self.counts))
            for head in group.heads:
                sets[head], windows[head] = place, ENDLESS if setting.full else setting.window
        together = [sorted(own + full) if place == 0 else own for place, own in enumerate(members)]
        shared = self.counts.query // heads.num_heads
        query_sets, query_windows = (
            self._numbers([each for each in own for _ in range(shared)]) for own in (sets, windows)
        )

        def some(own: list[int]) -> Heads:
            return Heads(self._numbers(own), query_windows)

        return HeadsOnGpu(
            tuple((place, some(own)) for place, own in enumerate(together) if own),
            tuple((place, some(own)) for place, own in enumerate(members) if own),
            some(sorted(itertools.chain(*together))),
            some(sorted(itertools.chain(*members))),
            HeadSets(self._numbers(sets), self._numbers(windows)),
            HeadSets(query_sets, query_windows),
        )

    def _numbers(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)
