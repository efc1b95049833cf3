"""How much of full attention's probability the mask keeps, and the strongest single links it keeps and drops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.budget import query_numbers
from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.composition.heads import HeadMask, counts_of, head_masks, layer_heads, memberships, part_of
from focus_runtime.composition.observe import observe_attention, observe_hidden_states
from focus_runtime.composition.state import FocusLayer
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError
from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.distances import mean_of_some
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.loss import check_positions, final_hidden
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import random_centroids
from focus_runtime.routing.router import Assignment

MASS_CAUSES = ("local", "sinks", "group", "dropped")
LINK_KINDS = {"kept": "group", "dropped": "dropped"}
TOP = 50
BLOCK_SCORES = 1 << 22  # attention scores held at once, 16 MB in float32

Progress = Callable[[int, int], None]
Links = dict[str, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]


@dataclass(frozen=True, slots=True)
class MassKept:
    """Where full attention's probability goes under a Focus mask, in L layers.

    `shares`: (N, L, H, 4) float64 by sequence, layer, query head and cause in the order of `MASS_CAUSES`, mean over
    query positions; they add up to 1.
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

    def rows(self) -> list[dict[str, Any]]:
        """One JSON-ready row per layer: share kept (mean, least and most over heads), by cause, and of distant pairs:
        mean over the heads that have some probability there, None where none has.
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
def attention_mass_kept(focus: FocusModel, sequences: Tensor) -> MassKept:
    """Share of the frozen model's full-attention probability that the Focus mask keeps, per layer and head.

    The routers read the frozen model's own hidden states, so that mask and probabilities belong to the same run. Layers
    with their own attention are left out; a focused layer with a sliding window counts its own window's pairs only.
    `sequences`: (N, T) token ids, run one at a time.
    """
    if sequences.dim() != 2 or 0 in sequences.shape:
        raise InputError(f"sequences has shape {tuple(sequences.shape)}", expected="(sequences, tokens) token ids")
    rows = sequences.to(input_device(focus.model)).split(1)
    shares = [mass_under_groups(focus, ids)[0].cpu().numpy() for ids in rows]
    return MassKept(tuple(focus.focused_layers), np.stack(shares))


@torch.no_grad()
def mass_under_groups(focus: FocusModel, ids: Tensor, masks: Mapping[int, Sequence[HeadMask]] | None = None) -> Tensor:
    """Full attention's probability by cause in one forward pass of the frozen model over (B, T) ids without padding.

    `masks` are by layer, as `focus.head_masks()` gives them after a Focus pass. None: the routers read the hidden
    states of this pass. Returns (B, L, H, 4) float64 over `focus.focused_layers`, in the order of `MASS_CAUSES`.
    """
    assignments: dict[int, Assignment] = {}
    shares: dict[int, Tensor] = {}

    def observe(layer: FocusLayer, query: Tensor, key: Tensor, scale: float, softcap: float | None) -> None:
        if layer.router is None:
            return
        counts = counts_of(query, key)
        if masks is not None:
            own = masks[layer.index]
        else:
            heads = layer_heads(focus.config, layer.index, counts)
            groups = memberships(assignments[layer.index], heads.top_ks, focus.config.top_k)
            own = head_masks(heads, groups, focus.config, layer.sliding)
        found = torch.empty(*query.shape[:2], len(MASS_CAUSES), dtype=torch.float64, device=query.device)
        for mask in own:
            part = part_of(mask.group, counts)
            of_heads = (query[:, part.query], key[:, part.key], mask.membership, mask.rule)
            found[:, part.query] = mass_by_cause(*of_heads, scale=scale, softcap=softcap)
        shares[layer.index] = found

    def route(index: int, hidden: Tensor) -> None:
        router = focus.routers[index]
        router.config = focus.config  # the same router may have been composed with other settings before
        assignments[index] = router.assign(hidden)

    routing = nullcontext() if masks is not None else observe_hidden_states(focus.model, focus.focused_layers, route)
    with observe_attention(focus, observe), routing:
        final_hidden(focus.model, ids)
    return torch.stack([shares[index].to(ids.device) for index in focus.focused_layers], dim=1)


def mass_by_cause(
    query: Tensor, key: Tensor, membership: Tensor, rule: PairRule, *, scale: float, softcap: float | None = None
) -> Tensor:
    """Probability of full causal attention by cause, mean over query positions: (B, Hq, 4) float64, adding up to 1.

    `query`: (B, Hq, T, D); `key`: (B, Hkv, T, D), Hq a multiple of Hkv; `membership`: (B, T) int64 bit sets. The rule's
    sliding window bounds full attention too.
    """
    total = torch.zeros(*query.shape[:2], len(MASS_CAUSES), dtype=torch.float64, device=query.device)
    for *_, shares in _blocks(query, key, membership, rule, scale, softcap):
        total += shares.sum(dim=2)
    return total / query.shape[2]


def _blocks(
    query: Tensor, key: Tensor, membership: Tensor, rule: PairRule, scale: float, softcap: float | None
) -> Iterator[tuple[slice, slice, Tensor, Tensor, Tensor]]:
    """Blocks of query rows: (rows, keys, probabilities (B, Hq, rows, keys), causes (B, rows, keys, 4), sums by cause
    (B, Hq, rows, 4) float64)."""
    batch, heads, length, _ = query.shape
    reach = rule.farthest(length) + 1
    step = max(1, BLOCK_SCORES // (batch * heads * length))
    for start in range(0, length, step):
        stop = min(start + step, length)
        first = max(0, start - reach + 1)
        rows, keys = slice(start, stop), slice(first, stop)
        weights = full_probabilities(query[:, :, rows], key[:, :, keys], start - first, reach, scale, softcap)
        causes = pair_causes(membership, rows, keys, rule)
        shares = torch.einsum("bhqk,bqkc->bhqc", weights, causes.to(weights.dtype)).double()
        yield rows, keys, weights, causes, shares


def full_probabilities(
    query: Tensor, key: Tensor, offset: int, reach: int, scale: float, softcap: float | None
) -> Tensor:
    """Full attention of some rows, (B, Hq, rows, keys) in fp32 or, for fp64 queries, fp64.

    Args:
        query: (B, Hq, rows, D); row r stands at key number offset + r.
        key: (B, Hkv, keys, D), Hq a multiple of Hkv.
        reach: a query attends to its last so many keys, its own among them.
        softcap: scores become softcap * tanh(scores / softcap). None: no cap.
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
    """The one cause of each pair of queries (rows) and keys: (B, rows, keys, 4) bool in the order of `MASS_CAUSES`."""
    position = torch.arange(membership.shape[1], device=membership.device)
    own, no_groups = (membership[:, rows], membership[:, keys]), torch.zeros_like(membership)
    none, at = (no_groups[:, rows], no_groups[:, keys]), (position[rows], position[keys])
    local = allowed_pairs(*none, *at, replace(rule, num_sinks=0))
    near, allowed = allowed_pairs(*none, *at, rule), allowed_pairs(*own, *at, rule)
    return torch.stack([local, near & ~local, allowed & ~near, ~allowed], dim=-1)


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """Full attention of one layer under a mask: H query heads, at most N links of each kind and head.

    `shares`: (H, 4) float64 share of probability in the order of `MASS_CAUSES`, mean over query positions.
    """

    layer: int
    shares: NDArray[np.float64]
    links: Links  # kind of `LINK_KINDS` -> (H, N) query, key and probability, strongest first; no link where it is 0
    queries: NDArray[np.float64]  # (T, 4) share of probability by cause of each query position, mean over heads


def measure_attention(
    model: Any,
    ids: list[int],
    membership: dict[int, NDArray[np.int64]],
    config: FocusConfig,
    *,
    top: int = TOP,
    progress: Progress = lambda done, total: None,
) -> list[LayerAttention]:
    """One forward pass of the frozen model, its full attention sorted by a mask that is already known.

    Args:
        membership: (T,) bit sets by layer that the attention of a Focus run executed; (S, T) where the heads of a layer
            have S distinct top-k, in the order of `LayerHeads.top_ks`.
        config: settings of that run.
        top: links kept of each kind, layer and head.
    """
    check_positions(model, len(ids))
    if any(bits.shape[-1] != len(ids) for bits in membership.values()):
        raise InputError("the groups and the tokens differ in number", expected=f"{len(ids)} of each")
    groups = {layer: torch.from_numpy(np.atleast_2d(bits))[:, None] for layer, bits in membership.items()}
    # The routers only mark which layers are focused; no groups are taken from them, so any will do.
    budget = tuple(entry for entry in config.budget if entry.layer in membership)
    routers = random_centroids(model, config.replace(layers=tuple(membership), budget=budget))
    layers: list[LayerAttention] = []

    def observe(layer: FocusLayer, query: Tensor, key: Tensor, scale: float, softcap: float | None) -> None:
        if layer.router is None:
            return
        heads = layer_heads(focus.config, layer.index, counts_of(query, key))
        masks = head_masks(heads, groups[layer.index].to(query.device), focus.config, layer.sliding)
        layers.append(LayerAttention(layer.index, *_by_head(query, key, masks, scale=scale, softcap=softcap, top=top)))
        progress(len(layers), len(groups))

    with compose(model, routers, assignment="sinkhorn") as focus:
        if set(focus.focused_layers) != set(membership):
            raise InputError("the run's layers are not those this model attends in", fix="explore the text again")
        with torch.no_grad(), observe_attention(focus, observe):
            final_hidden(model, torch.tensor([ids], device=input_device(model)))
    return layers


def _by_head(
    query: Tensor, key: Tensor, masks: Sequence[HeadMask], **how: Any
) -> tuple[NDArray[np.float64], Links, NDArray[np.float64]]:
    """`mass_and_links` of a layer whose heads may differ."""
    counts, parts = counts_of(query, key), []
    for mask in masks:
        part = part_of(mask.group, counts)
        parts.append(mass_and_links(query[:, part.query], key[:, part.key], mask.membership, mask.rule, **how))
    heads = [query_numbers(mask.group, counts) for mask in masks]
    weights, back = [len(own) for own in heads], np.argsort(np.concatenate(heads))
    shares = np.concatenate([part[0] for part in parts])[back]
    links: Links = {}
    for kind in LINK_KINDS:
        arrays = [np.concatenate([part[1][kind][place] for part in parts])[back] for place in range(3)]
        links[kind] = (arrays[0], arrays[1], arrays[2])
    return shares, links, np.average([part[2] for part in parts], axis=0, weights=weights)


def mass_and_links(
    query: Tensor,
    key: Tensor,
    membership: Tensor,
    rule: PairRule,
    *,
    scale: float,
    softcap: float | None = None,
    top: int = TOP,
) -> tuple[NDArray[np.float64], Links, NDArray[np.float64]]:
    """`mass_by_cause` of one sequence as (Hq, 4), and links and (T, 4) shares of queries as in `LayerAttention`."""
    _, heads, length, _ = query.shape
    by_query = torch.zeros(length, len(MASS_CAUSES), dtype=torch.float64, device=query.device)
    total = torch.zeros(heads, len(MASS_CAUSES), dtype=torch.float64, device=query.device)
    best = {kind: _Strongest(heads, top, length) for kind in LINK_KINDS}
    for rows, keys, weights, causes, shares in _blocks(query, key, membership, rule, scale, softcap):
        total += shares[0].sum(dim=1)
        by_query[rows] = shares[0].mean(dim=0)
        for kind, cause in LINK_KINDS.items():
            best[kind].add(weights[0] * causes[0, ..., MASS_CAUSES.index(cause)], rows.start, keys.start)
    links = {kind: strongest.arrays() for kind, strongest in best.items()}
    return (total / length).cpu().numpy(), links, by_query.cpu().numpy()


class _Strongest:
    """The `top` largest probabilities of each head so far, with their pairs coded as query T + key."""

    def __init__(self, heads: int, top: int, length: int) -> None:
        self.top, self.length = top, length
        self.values = torch.zeros(heads, 0, dtype=torch.float64)
        self.pairs = torch.zeros(heads, 0, dtype=torch.int64)

    def add(self, weights: Tensor, first_query: int, first_key: int) -> None:
        """Look through (H, rows, keys) probabilities."""
        keys = weights.shape[2]
        values, at = weights.flatten(1).topk(min(self.top, weights.shape[1] * keys), dim=1)
        pairs = (at // keys + first_query) * self.length + at % keys + first_key
        self.values = torch.cat([self.values, values.double().cpu()], dim=1)
        self.pairs = torch.cat([self.pairs, pairs.cpu()], dim=1)
        order = self.values.argsort(dim=1, descending=True, stable=True)[:, : self.top]
        self.values, self.pairs = self.values.gather(1, order), self.pairs.gather(1, order)

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """(H, N) queries, keys and probabilities."""
        pairs = self.pairs.numpy()
        return pairs // self.length, pairs % self.length, self.values.numpy()
