"""What a pass may do besides executing the settings in force: one `Mode` each, entered by a `with` block of FocusModel.

Shape suffixes: B batch, H query heads, Q queries, T keys, D head size, N pairs, S settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from focus_runtime.attention.decomposed_backward import straight_through_attention
from focus_runtime.attention.flash import has_backward
from focus_runtime.attention.soft import gated_attention
from focus_runtime.budget import HeadSetting, query_numbers
from focus_runtime.composition.attend import by_setting, every_head_at, groups_of_keys, own_attention
from focus_runtime.composition.changes import LayerEdit
from focus_runtime.composition.factors import with_factors
from focus_runtime.composition.heads import HeadMask, head_masks
from focus_runtime.composition.state import Attend, Call, FocusLayer, Mode
from focus_runtime.errors import InputError, ModelError
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.models.structure import output_projection
from focus_runtime.routing.router import Assignment

OnAttention = Callable[[FocusLayer, Tensor, Tensor, float, float | None], None]

DENSE_UP_TO = 4096  # tokens up to which training on the hard mask computes all pairs, dropped ones included


class FullAttention(Mode):
    """Every layer runs its own full attention through torch's SDPA, timed; a function may see its queries and keys."""

    full = documents = True

    def __init__(self, on_attention: OnAttention | None = None) -> None:
        self.on_attention = on_attention

    def attend(self, attend: Attend, module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
        if self.on_attention is not None:
            self.on_attention(layer, call.query, call.key, call.scoring.scale, call.scoring.softcap)
        return attend(module, layer, call)


class Check(Mode):
    """The pass of check.py."""

    checks = documents = True


class Edits(Mode):
    """Tokens moved, linked or silenced by hand, by layer."""

    def __init__(self, edits: Mapping[int, LayerEdit]) -> None:
        self.edits = edits

    def edited(self, layer: FocusLayer, assignment: Assignment) -> Assignment:
        edit = self.edits.get(layer.index)
        if edit is None:
            return assignment
        return edit.applied(assignment, layer.current_pass.before, layer.owner.config.top_k)


class Observed(Mode):
    """A function is called with every layer, its call and what the call returned."""

    documents = True

    def __init__(self, observer: Any) -> None:
        self.observer = observer

    def attend(self, attend: Attend, module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
        out_BQHD = attend(module, layer, call)
        self.observer(layer, with_factors(layer, call), out_BQHD)
        return out_BQHD


@dataclass
class SoftGate(Mode):
    """A training pass: soft gates in place of the hard mask; see `gated_attention`.

    `hard`: the hard mask with straight-through gradients. On the CPU beyond 4,096 tokens in memory linear in the text,
    and then without a gradient from dropped pairs (`straight_through_attention`).
    """

    gate: str = "log"  # "log" or "paper"
    steepness: float = 8.0
    hard: bool = False
    continues = False
    documents = True

    def attend(self, attend: Attend, module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
        assignment, config = layer.current_pass.assignment, layer.owner.config
        assert assignment is not None, "the pre-hook runs before attention"
        plain = assignment.everywhere is None and call.scoring.softcap is None and call.padding is None

        def gated(part: Call, setting: HeadSetting) -> Tensor:
            _check_gated(layer, part)
            rule, probabilities = PairRule.of(config, setting.window), assignment.probabilities
            if self.hard and plain and has_backward(part.query) and part.total > DENSE_UP_TO:
                return straight_through_attention(
                    *part.tensors, probabilities, rule, part.scoring.scale, top_k=setting.top_k
                ).transpose(1, 2)
            return gated_attention(
                *part.tensors,
                probabilities,
                rule,
                part.scoring,
                gate=self.gate,
                steepness=self.steepness,
                hard_top_k=setting.top_k if self.hard else None,
                everywhere=assignment.everywhere,
            ).transpose(1, 2)

        return by_setting(module, layer, with_factors(layer, call), gated)


def _check_gated(layer: FocusLayer, call: Call) -> None:
    if call.sinks is not None:
        raise ModelError(
            f"layer {layer.index} of this model has learned attention sinks, which soft gates do not know",
            fix="train with --loss layers, or another model",
        )
    if layer.sliding is not None and call.total > layer.sliding:
        raise ModelError(
            f"layer {layer.index} of this model attends to the last {layer.sliding} tokens only, but the training "
            f"text has {call.total}",
            expected=f"at most {layer.sliding} tokens",
            fix="train on shorter texts",
        )


@dataclass
class Alternatives(Mode):
    """Other settings, mixed into what every head returns with weight 0: gradients tell what each would change.

    With weight a, a head returns (1 - a) of what it executes and a of what it would return at the other setting.
    """

    settings: tuple[HeadSetting, ...]
    weights: dict[int, Tensor] = field(default_factory=dict)  # by layer, (S, Hkv) fp32 zeros; filled by the first pass

    def attend(self, attend: Attend, module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
        out_BQHD, current, heads = attend(module, layer, call), layer.current_pass, call.counts.key
        assert current.assignment is not None, "the pre-hook runs before attention"
        if layer.index not in self.weights:
            device = out_BQHD.device
            self.weights[layer.index] = torch.zeros(len(self.settings), heads, device=device, requires_grad=True)
        executed_BQHD, backend = out_BQHD.detach(), current.backend
        for setting, weight_H in zip(self.settings, self.weights[layer.index], strict=True):
            with torch.no_grad():
                if setting.full:
                    other_BQHD = own_attention(module, layer, call)
                else:
                    other_BQHD = every_head_at(layer, call, current.assignment, setting)
                difference = (other_BQHD - executed_BQHD).unflatten(2, (heads, -1))
            out_BQHD = out_BQHD + (difference * weight_H[:, None, None]).flatten(2, 3).to(out_BQHD.dtype)
        current.backend = backend
        return out_BQHD


@dataclass
class Comparison(Mode):
    """Every layer returns full attention; the relative squared error of Focus after the output projection is noted."""

    errors: dict[int, Tensor] = field(default_factory=dict)  # by layer, fp32, with the gradient of the layer's router

    def attend(self, attend: Attend, module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
        with torch.no_grad():
            full_BQHD = own_attention(module, layer, call)
        project = output_projection(module, full_BQHD.shape[2])
        expected = project(full_BQHD).float().square().sum()
        error = project(attend(module, layer, call) - full_BQHD).float().square().sum()
        self.errors[layer.index] = error / expected.clamp_min(torch.finfo(torch.float32).tiny)
        return full_BQHD


@dataclass
class Probe(Mode):
    """What every head would do to the loss at other settings, while layers return full attention.

    The backward pass fills `found`, by layer, (S, B, H, T) fp32: the gradient of the loss with respect to what a head
    returns for a token, times what a setting would change there.
    """

    settings: tuple[HeadSetting, ...]
    leaf: Tensor = field(default_factory=lambda: torch.zeros((), requires_grad=True))  # 0, added to all outputs
    found: dict[int, Tensor] = field(default_factory=dict)

    def attend(self, attend: Attend, module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
        full_BQHD = own_attention(module, layer, call)
        assignment, before_BQHD = layer.current_pass.assignment, full_BQHD.detach()
        assert assignment is not None, "the pre-hook runs before attention"

        def weigh(gradient_BQHD: Tensor) -> None:
            rows = []
            for setting in self.settings:
                if setting.full:
                    rows.append(torch.zeros(before_BQHD.shape[:3], device=before_BQHD.device).transpose(1, 2))
                    continue
                change_BQHD = every_head_at(layer, call, assignment, setting) - before_BQHD
                rows.append((change_BQHD * gradient_BQHD).sum(dim=-1, dtype=torch.float32).transpose(1, 2))
            self.found[layer.index] = torch.stack(rows)

        out_BQHD = full_BQHD + self.leaf.to(full_BQHD)
        if out_BQHD.requires_grad:
            out_BQHD.register_hook(torch.no_grad()(weigh))
        return out_BQHD


class AddedPairs(Mode):
    """Single pairs that attend in addition to the mask: what a dropped link would have done."""

    def __init__(self, pairs: Mapping[int, Tensor], layers: Collection[int]) -> None:
        self.pairs = pairs  # by layer, (N, 3) int64: query head, query and key by position in the text
        for layer, pairs_N3 in pairs.items():
            if layer not in layers:
                raise InputError(f"layer {layer} attends to everything already", expected="a layer that Focus runs in")
            if bool((pairs_N3[:, 2] > pairs_N3[:, 1]).any()) or bool((pairs_N3 < 0).any()):
                raise InputError("a token cannot see a later one", expected="a key at or before its query")

    def attend(self, attend: Attend, module: nn.Module, layer: FocusLayer, call: Call) -> Tensor:
        out_BQHD, pairs_N3 = attend(module, layer, call), self.pairs.get(layer.index)
        if pairs_N3 is None:
            return out_BQHD
        heads, groups_SBT = layer.plan(call).heads, groups_of_keys(layer, call)
        masks = head_masks(heads, groups_SBT, layer.owner.config, layer.sliding)
        return _with_added(with_factors(layer, call), masks, out_BQHD, pairs_N3)


def _with_added(call: Call, masks: tuple[HeadMask, ...], out_BQHD: Tensor, pairs_N3: Tensor) -> Tensor:
    """The same output, the rows of the added pairs computed again; queries before the call's are left out."""
    query, key, value, total = *call.tensors, call.total
    if query.shape[0] != 1:
        raise InputError(f"pairs cannot be added to {query.shape[0]} texts at once", expected="one text")
    first_query, first_key = total - query.shape[2], total - key.shape[2]
    position_T = torch.arange(first_key, total, device=key.device)
    mask_of = {head: mask for mask in masks for head in query_numbers(mask.group, call.counts)}
    out_BQHD = out_BQHD.clone()
    exact = torch.promote_types(query.dtype, torch.float32)
    for (head, row), pairs in groupby(sorted(pairs_N3.tolist()), key=lambda pair: (pair[0], pair[1])):
        if row < first_query:
            continue
        keys, mask = [pair[2] for pair in pairs], mask_of[head]
        if row - min(keys) > mask.rule.farthest(total) or min(keys) < first_key:
            raise InputError(
                f"token {min(keys)} lies beyond the sliding window of this layer, seen from token {row}",
                expected=f"a key at most {mask.rule.farthest(total)} tokens before",
            )
        bits_BT, at = mask.membership, slice(row - first_key, row - first_key + 1)
        allowed_T = allowed_pairs(bits_BT[:, at], bits_BT, position_T[at], position_T, mask.rule)[0, 0]
        allowed_T[torch.tensor(keys, device=key.device) - first_key] = True
        shared = head // call.counts.shared_by
        scores_T = key[0, shared].to(exact) @ query[0, head, row - first_query].to(exact) * call.scoring.scale
        weights_T = call.scoring.capped(scores_T).masked_fill(~allowed_T, float("-inf")).softmax(dim=0)
        out_BQHD[0, row - first_query, head] = (weights_T @ value[0, shared].to(exact)).to(out_BQHD.dtype)
    return out_BQHD
