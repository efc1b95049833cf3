"""Heads of one layer: which of them share a setting, and the groups each setting gives the tokens.

Shape suffixes: B batch, T tokens, S distinct top-k.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.budget import HeadCounts, HeadGroup, query_numbers
from focus_runtime.config import FocusConfig
from focus_runtime.gpu import on_gpu, tried
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.router import Assignment, all_groups, top_k_membership

EVERYTHING = 2**62  # a window that no text is longer than
SETS = "groups by top-k"  # name of the Triton kernel in warnings
MOST_SETS = 7  # that it gives at once


@dataclass(frozen=True, slots=True)
class LayerHeads:
    """The heads of one layer by what they execute, and each top-k of those that are not full, in the order of its
    memberships."""

    groups: tuple[HeadGroup, ...]
    top_ks: tuple[int, ...]

    @property
    def uniform(self) -> bool:
        """Whether all heads run Focus with one setting."""
        return len(self.groups) == 1 and not self.groups[0].setting.full

    @property
    def full(self) -> tuple[HeadGroup, ...]:
        """The groups whose heads attend fully."""
        return tuple(group for group in self.groups if group.setting.full)

    @property
    def num_heads(self) -> int:
        """Heads of the kind that the groups number."""
        return sum(len(group.heads) for group in self.groups)


@dataclass(frozen=True, slots=True)
class HeadMask:
    """The pairs that some heads of a layer used in one pass.

    Attributes:
        membership: (B, T) int64 bit sets; one group of all tokens where the heads attend fully.
    """

    group: HeadGroup
    membership: Tensor
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
    everywhere_BT, edit = assignment.everywhere, assignment.edit
    if assignment.by_top_k is not None and assignment.by_top_k[0] == top_ks:
        return assignment.by_top_k[1]
    if top_ks == (usual,):
        return assignment.membership[None]
    if not (assignment.uniform or assignment.beyond or edit is not None):  # probabilities decided nothing
        return torch.stack([assignment.membership if k else torch.zeros_like(assignment.membership) for k in top_ks])
    own = assignment.probabilities.detach()
    if on_gpu(own.device) and own.dtype == torch.float32 and len(top_ks) <= MOST_SETS:
        # one kernel in place of a sort for each k and a wait for the GPU
        from focus_runtime.routing.on_gpu import sets_on_gpu  # needs Triton

        probabilities_BTK, membership_BT = own.contiguous(), assignment.membership.contiguous()
        tokens_BT = None if everywhere_BT is None else everywhere_BT.contiguous()
        found_SBT = tried(SETS, own, lambda: sets_on_gpu(probabilities_BTK, membership_BT, tokens_BT, top_ks, usual))
        if found_SBT is not None:
            return found_SBT if edit is None else edit.applied(found_SBT)
    groups_SBT = torch.stack([assignment.membership if k == usual else top_k_membership(own, k) for k in top_ks])
    if everywhere_BT is not None:
        some_S11 = torch.tensor(top_ks, device=own.device)[:, None, None] > 0  # heads without groups have none of these
        groups_SBT = groups_SBT | all_groups(everywhere_BT & some_S11, own.shape[-1])
    return groups_SBT if edit is None else edit.applied(groups_SBT)


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


def by_key_head(tensor: Tensor, dim: int, num_heads: int) -> Tensor:
    """Split the dimension of query heads into (key-value heads, query heads that share one)."""
    return tensor.unflatten(dim, (num_heads, -1))
