"""Heads of one layer: which of them share a setting, the groups each setting gives the tokens, and what kernels read.

Shape suffixes: B batch, H query heads, G key-value heads, T tokens, S distinct top-k."""

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
from focus_runtime.config import CONSTANT, FocusConfig
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.router import Assignment, all_groups, top_k_membership

if TYPE_CHECKING:
    from focus_runtime.attention.cuda.grouped import Heads
    from focus_runtime.attention.cuda.tiles import HeadSets


MOST_SETS = 7  # top-k for which a kernel decides groups at once


@dataclass(frozen=True, slots=True)
class LayerHeads:
    """The heads of one layer by what they execute."""

    groups: tuple[HeadGroup, ...]
    top_ks: tuple[int, ...]  # each one of heads that are not full, in the order of the layer's memberships

    @property
    def uniform(self) -> bool:
        """Whether all heads run Focus with one setting."""
        return len(self.groups) == 1 and not self.groups[0].setting.full

    @property
    def full(self) -> tuple[HeadGroup, ...]:
        """The groups whose heads attend fully."""
        return tuple(group for group in self.groups if group.setting.full)


@dataclass(frozen=True, slots=True)
class HeadMask:
    """The pairs that some heads of a layer used in one pass."""

    group: HeadGroup
    membership: Tensor  # (B, T) int64 bit sets; one group of all tokens where the heads attend fully
    rule: PairRule


def layer_heads(config: FocusConfig, layer: int, counts: HeadCounts) -> LayerHeads:
    """What the heads of one layer execute."""
    groups = config.head_groups(layer, counts)
    top_ks = {group.setting.top_k: None for group in groups if not group.setting.full}
    return LayerHeads(groups, tuple(top_ks) or (config.top_k,))


def memberships(assignment: Assignment, top_ks: tuple[int, ...], usual: int) -> Tensor:
    """Groups of every token for each of S distinct top-k of a layer, (S, B, T) int64; the assignment has the usual one.

    With a top-k of 0 no token has a group. A function that replaces what routers decide decides for every other one.
    """
    if assignment.by_top_k is not None and assignment.by_top_k[0] == top_ks:
        return assignment.by_top_k[1]
    if top_ks == (usual,):
        return assignment.membership[None]
    if not (assignment.exact or assignment.edit is not None):  # probabilities decided nothing
        return torch.stack([assignment.membership if k else torch.zeros_like(assignment.membership) for k in top_ks])
    own = assignment.probabilities.detach()
    groups = [assignment.membership if k == usual else top_k_membership(own, k) for k in top_ks]
    if assignment.everywhere is not None:
        everywhere_BT = all_groups(assignment.everywhere, own.shape[-1])
        groups = [groups_BT | everywhere_BT if k else groups_BT for k, groups_BT in zip(top_ks, groups, strict=True)]
    groups_SBT = torch.stack(groups)
    return groups_SBT if assignment.edit is None else assignment.edit.applied(groups_SBT)


def head_masks(
    heads: LayerHeads, groups_SBT: Tensor, config: FocusConfig, sliding_window: int | None
) -> tuple[HeadMask, ...]:
    """The pairs that each group of heads of one layer may use, by `memberships`, (S, B, T)."""
    masks = []
    for group in heads.groups:
        setting = group.setting
        if setting.full:
            membership_BT, window = torch.ones_like(groups_SBT[0]), config.window
        else:
            membership_BT, window = groups_SBT[heads.top_ks.index(setting.top_k)], setting.window
        masks.append(HeadMask(group, membership_BT, PairRule.of(config, window, sliding_window)))
    return tuple(masks)


def _as_slice(numbers: Sequence[int]) -> slice | None:
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    if len(steps) > 1 or min(steps, default=1) < 1:
        return None
    return slice(numbers[0], numbers[-1] + 1, next(iter(steps), 1))


def counts_of(query: Tensor, key: Tensor) -> HeadCounts:
    """Heads of an attention call: queries (B, Hq, Tq, D), keys (B, Hkv, Tk, D)."""
    return HeadCounts(key.shape[1], query.shape[1])


@dataclass(frozen=True, slots=True)
class Part:
    """Some heads of a layer, as queries and keys are indexed for them; as many query heads share each key head."""

    query: slice | list[int]
    key: slice | list[int]


def part_of(group: HeadGroup, counts: HeadCounts) -> Part:
    """The heads of a group; key heads are repeated where unequally many of its query heads share them."""
    query = query_numbers(group, counts)
    keys = [head // counts.shared_by for head in query]
    numbers = list(dict.fromkeys(keys))
    if any(keys.count(number) != keys.count(numbers[0]) for number in numbers):
        numbers = keys
    return Part(_as_slice(query) or query, _as_slice(numbers) or numbers)


FULL = "full attention"  # named with the backends, for heads whose budget gives them that
ENDLESS = (1 << 31) - 1  # a window in int32 that no text is longer than


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the windows of a layer's query heads reach."""

    acts: Tensor  # (H,) 1, or 0 for a head with full attention
    tokens: Tensor  # (H,) tokens within the window before it grows, the query's own among them; 0 with full attention
    least: float  # fewest of these tokens among heads that have a window; infinite where none has
    growth: tuple[int, int] = CONSTANT  # first and last position of the windows' growth

    def beyond(self, visible_BT: Tensor, position_BT: Tensor) -> Tensor:
        """Share of the visible tokens, at least 1, that lies beyond each head's window, (B, H, T)."""
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
    """What kernels in Triton read of the heads of a layer."""

    parts: tuple[tuple[int, Heads], ...]  # for each top-k, its place, and its query heads; full ones go with the first
    focused: tuple[tuple[int, Heads], ...]  # the same without full ones
    every: Heads
    every_focused: Heads
    step: HeadSets  # membership and window of each head, for decode steps
    pairs: HeadSets  # and of each query head, for the kernel that tests all pairs


class Plan:
    """What the heads of a layer execute under one configuration, in calls with these numbers of heads on one device.

    With it kept from call to call, and kernels launched by a few lines of C, a decode step on an H100 went from 0.73 to
    0.85 of full attention's speed, and a text of 1,024 tokens from 0.76 to 0.94 (LOG.md, 2026-11-27).
    """

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
    def step_backends(self) -> str:
        """What runs a decode step that the compiled kernel takes with all its heads."""
        return ", ".join(dict.fromkeys(FULL if group.setting.full else "fused" for group in self.heads.groups))

    @cached_property
    def rules(self) -> HeadRules:
        """What each head sees, for the compiled kernel."""
        return self._rules(())

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
            [number[head] for head in range(len(number))],
            [0 if each.full else heads.top_ks.index(each.top_k) for each in settings],
            [ENDLESS if each.full else each.window for each in settings],
            heads.top_ks,
        )

    @cached_property
    def on_gpu(self) -> HeadsOnGpu:
        from focus_runtime.attention.cuda.grouped import Heads  # these need Triton
        from focus_runtime.attention.cuda.tiles import HeadSets

        heads = self.heads
        num_heads = sum(len(group.heads) for group in heads.groups)  # of keys, or of queries where the budget says so
        sets, windows = [0] * num_heads, [0] * num_heads
        members: list[list[int]] = [[] for _ in heads.top_ks]
        full: list[int] = []
        for group in heads.groups:
            setting = group.setting
            place = 0 if setting.full else heads.top_ks.index(setting.top_k)
            (full if setting.full else members[place]).extend(query_numbers(group, self.counts))
            for head in group.heads:
                sets[head], windows[head] = place, ENDLESS if setting.full else setting.window
        together = [sorted(own + full) if place == 0 else own for place, own in enumerate(members)]
        shared = self.counts.query // num_heads
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
