"""How much of the frozen model's full-attention probability lies inside the Focus mask.

The probabilities are the frozen model's own: its full attention on its own hidden states, no pair dropped in any layer
before. Every pair has one cause: `local` (i - j <= w), else `sinks` (j < s), else `group` (a shared group), else
`dropped`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.composition.attach import FocusModel
from focus_runtime.composition.heads import HeadMask, counts_of, head_masks, memberships, part_of
from focus_runtime.composition.observe import observe_attention, observe_hidden_states
from focus_runtime.composition.state import FocusLayer
from focus_runtime.errors import InputError
from focus_runtime.mask.dense import allowed_pairs
from focus_runtime.mask.distant import mean_of_some
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.device_map import input_device
from focus_runtime.routing.router import Assignment

MASS_CAUSES = ("local", "sinks", "group", "dropped")
GROUPS_FROM = ("full", "focus")
BLOCK_SCORES = 1 << 22  # attention scores held at once, 16 MB in float32


@dataclass(frozen=True, slots=True)
class MassKept:
    """Where full attention's probability goes under a Focus mask: N sequences, L focused layers, H query heads.

    Attributes:
        layers: (L,) layer numbers.
        shares: (N, L, H, 4) float64 in the order of `MASS_CAUSES`, adding up to 1: the mean over all T query positions,
            the first ones (which the window covers wholly) among them.
    """

    layers: tuple[int, ...]
    shares: NDArray[np.float64]

    def cause(self, name: str) -> NDArray[np.float64]:
        """(L, H) share of the probability with one cause, mean over sequences and query positions."""
        return self.shares[..., MASS_CAUSES.index(name)].mean(axis=0)

    @property
    def kept(self) -> NDArray[np.float64]:
        """(L, H) share of the probability inside the mask."""
        return 1.0 - self.cause("dropped")

    @property
    def distant_kept(self) -> NDArray[np.float64]:
        """(L, H) of the probability beyond window and sinks, the share kept; NaN where there is none."""
        group, dropped = self.cause("group"), self.cause("dropped")
        far = group + dropped
        return np.divide(group, far, out=np.full_like(far, np.nan), where=far > 0)

    @property
    def per_sequence(self) -> NDArray[np.float64]:
        """(N,) share kept, mean over layers and heads, for intervals over sequences."""
        return 1.0 - self.shares[..., MASS_CAUSES.index("dropped")].mean(axis=(1, 2))

    def rows(self) -> list[dict[str, Any]]:
        """One JSON-ready row per layer: share kept (mean, least and most over heads), by cause, of distant pairs.

        The last is the mean over the heads that have some probability there, None where none has.
        """
        kept, distant = self.kept, self.distant_kept
        causes = {name: self.cause(name) for name in MASS_CAUSES}
        return [
            {
                "layer": layer,
                "kept": float(kept[row].mean()),
                "kept_least_head": float(kept[row].min()),
                "kept_most_head": float(kept[row].max()),
                "distant_kept": mean_of_some(distant[row].tolist()),
                **{name: float(values[row].mean()) for name, values in causes.items()},
            }
            for row, layer in enumerate(self.layers)
        ]


@torch.no_grad()
def attention_mass_kept(focus: FocusModel, sequences: Tensor, *, groups_from: str = "full") -> MassKept:
    """Share of the frozen model's full-attention probability that the Focus mask keeps, per layer and head.

    Args:
        focus: what `compose` returned; its settings in force decide the mask. Layers that keep their own attention are
            left out; a focused layer with a sliding window counts its own window's pairs only.
        sequences: (N, T) token ids, run one at a time.
        groups_from: whose hidden states the routers read. "full": the frozen model's own, so that mask and
            probabilities belong to the same run. "focus": those of a Focus run on the same text, which are the groups
            that Focus really uses; they differ in deeper layers.

    Raises:
        InputError: sequences is no (N, T) tensor, or groups_from is unknown.
    """
    if groups_from not in GROUPS_FROM:
        raise InputError(f"groups_from is {groups_from!r}", expected=" or ".join(GROUPS_FROM))
    if sequences.dim() != 2 or 0 in sequences.shape:
        raise InputError(f"sequences has shape {tuple(sequences.shape)}", expected="(sequences, tokens) token ids")
    device, shares = input_device(focus.model), []
    for row in sequences.split(1):
        ids = row.to(device)
        masks = None
        if groups_from == "focus":
            final_hidden(focus.model, ids)
            masks = focus.head_masks()
        shares.append(mass_under_groups(focus, ids, masks)[0].cpu().numpy())
    return MassKept(tuple(focus.focused_layers), np.stack(shares))


@torch.no_grad()
def mass_under_groups(focus: FocusModel, ids: Tensor, masks: Mapping[int, Sequence[HeadMask]] | None = None) -> Tensor:
    """Full attention's probability by cause for groups already known, in one forward pass of the frozen model.

    Args:
        ids: (B, T) token ids without padding.
        masks: by layer, as `focus.head_masks()` gives them after a Focus pass; when None the routers read the hidden
            states of this pass.

    Returns:
        (B, L, H, 4) float64 over `focus.focused_layers`, in the order of `MASS_CAUSES`.
    """
    assignments: dict[int, Assignment] = {}
    shares: dict[int, Tensor] = {}

    def observe(layer: FocusLayer, query: Tensor, key: Tensor, scale: float, softcap: float | None) -> None:
        if layer.router is None:
            return
        if masks is not None:
            own = masks[layer.index]
        else:
            heads = layer.heads(counts_of(query, key))
            groups = memberships(assignments[layer.index], heads.top_ks, focus.config.top_k)
            own = head_masks(heads, groups, focus.config, layer.sliding)
        shares[layer.index] = mass_by_head(query, key, own, scale=scale, softcap=softcap)

    def route(index: int, hidden: Tensor) -> None:
        router = focus.routers[index]
        router.config = focus.config  # the same router may have been composed with other settings before
        assignments[index] = router.assign(hidden)

    routing = nullcontext() if masks is not None else observe_hidden_states(focus.model, focus.focused_layers, route)
    with observe_attention(focus, observe), routing:
        final_hidden(focus.model, ids)
    return torch.stack([shares[index].to(ids.device) for index in focus.focused_layers], dim=1)


def mass_by_head(
    query: Tensor, key: Tensor, masks: Sequence[HeadMask], *, scale: float, softcap: float | None = None
) -> Tensor:
    """`mass_by_cause` of a layer whose heads may differ.

    Args:
        query: (B, Hq, T, D); key: (B, Hkv, T, D).
        masks: of the layer's groups of heads.
        scale, softcap: as in `mass_by_cause`.

    Returns:
        (B, Hq, 4) float64 in the order of `MASS_CAUSES`.
    """
    counts = counts_of(query, key)
    shares = torch.empty(*query.shape[:2], len(MASS_CAUSES), dtype=torch.float64, device=query.device)
    for mask in masks:
        part = part_of(mask.group, counts)
        shares[:, part.query] = mass_by_cause(
            query[:, part.query], key[:, part.key], mask.membership, mask.rule, scale=scale, softcap=softcap
        )
    return shares


def mass_by_cause(
    query: Tensor,
    key: Tensor,
    membership: Tensor,
    rule: PairRule,
    *,
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """Probability of full causal attention by cause, mean over query positions, in blocks of query rows.

    Args:
        query: (B, Hq, T, D); key: (B, Hkv, T, D), Hq a multiple of Hkv.
        membership: (B, T) int64 bit sets.
        rule: window, sinks and the layer's own sliding window, which bounds full attention too.
        scale: factor on the scores.
        softcap: scores become softcap * tanh(scores / softcap); None for no cap.

    Returns:
        (B, Hq, 4) float64 in the order of `MASS_CAUSES`, adding up to 1.
    """
    batch, heads, length, _ = query.shape
    reach = rule.farthest(length) + 1
    rows = max(1, BLOCK_SCORES // (batch * heads * length))
    total = torch.zeros(batch, heads, len(MASS_CAUSES), dtype=torch.float64, device=query.device)
    for start in range(0, length, rows):
        stop = min(start + rows, length)
        first = max(0, start - reach + 1)
        weights = full_probabilities(
            query[:, :, start:stop], key[:, :, first:stop], start - first, reach, scale, softcap
        )
        causes = pair_causes(membership, slice(start, stop), slice(first, stop), rule).to(weights.dtype)
        total += torch.einsum("bhqk,bqkc->bhqc", weights, causes).double().sum(dim=2)
    return total / length


def full_probabilities(
    query: Tensor, key: Tensor, offset: int, reach: int, scale: float, softcap: float | None
) -> Tensor:
    """Full attention of some rows.

    Args:
        query: (B, Hq, rows, D).
        key: (B, Hkv, keys, D), Hq a multiple of Hkv.
        offset: query row r stands at key number offset + r.
        reach: a query attends to its last so many keys, its own among them.
        scale: factor on the scores.
        softcap: scores become softcap * tanh(scores / softcap); None for no cap.

    Returns:
        (B, Hq, rows, keys) probabilities, fp32 or, for fp64 queries, fp64.
    """
    batch, heads, rows, size = query.shape
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    query_rows = query.to(dtype).reshape(batch, key.shape[1], heads // key.shape[1] * rows, size)
    scores = (query_rows @ key.to(dtype).transpose(-1, -2) * scale).view(batch, heads, rows, key.shape[2])
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    i = torch.arange(offset, offset + rows, device=query.device)[:, None]
    distance = i - torch.arange(key.shape[2], device=query.device)
    return scores.masked_fill((distance < 0) | (distance >= reach), float("-inf")).softmax(dim=-1)


def pair_causes(membership: Tensor, rows: slice, keys: slice, rule: PairRule) -> Tensor:
    """The one cause of every causal pair.

    Args:
        membership: (B, T) int64 bit sets.
        rows: which tokens are queries.
        keys: which tokens are keys.
        rule: window, sinks and the layer's own sliding window.

    Returns:
        (B, rows, keys, 4) bool in the order of `MASS_CAUSES`.
    """
    position = torch.arange(membership.shape[1], device=membership.device)
    sides = (membership[:, rows], membership[:, keys], position[rows], position[keys])
    none = torch.zeros_like(membership)
    no_sinks = replace(rule, num_sinks=0)
    local = allowed_pairs(none[:, rows], none[:, keys], position[rows], position[keys], no_sinks)
    near = allowed_pairs(none[:, rows], none[:, keys], position[rows], position[keys], rule)
    allowed = allowed_pairs(*sides, rule)
    return torch.stack([local, near & ~local, allowed & ~near, ~allowed], dim=-1)
