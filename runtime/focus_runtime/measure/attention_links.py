"""The single strongest links of full attention, those a Focus mask drops and those it keeps.

A link is one (query, key) pair of one head with its probability under the frozen model's own full attention, on that
model's own hidden states. Of the pairs beyond window and sinks, `kept` ones share a group and `dropped` ones do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focus_runtime.budget import query_numbers
from focus_runtime.composition.attach import compose
from focus_runtime.composition.heads import HeadMask, counts_of, head_masks, part_of
from focus_runtime.composition.observe import observe_attention
from focus_runtime.composition.state import FocusLayer
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure import attention_mass
from focus_runtime.measure.attention_mass import MASS_CAUSES, full_probabilities, pair_causes
from focus_runtime.measure.loss import check_positions, final_hidden
from focus_runtime.models.device_map import input_device
from focus_runtime.routing.centroids import random_centroids

LINK_KINDS = {"kept": "group", "dropped": "dropped"}
TOP = 50
Progress = Callable[[int, int], None]
Links = dict[str, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """Full attention of one layer under a mask: H query heads, at most N links of each kind and head.

    Attributes:
        layer: layer number in the model.
        shares: (H, 4) float64 share of probability in the order of `MASS_CAUSES`, mean over query positions.
        links: kind of `LINK_KINDS` -> (H, N) query, (H, N) key, (H, N) probability, strongest first; a probability of
            0 stands for no link.
        queries: (T, 4) share of probability by cause of each query position, mean over heads.
    """

    layer: int
    shares: NDArray[np.float64]
    links: Links
    queries: NDArray[np.float64]


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

    Memory: `BLOCK_SCORES` probabilities at once, and the strongest links so far.

    Args:
        model: causal language model without Focus.
        ids: T token ids.
        membership: (T,) bit sets by layer that the attention of a Focus run executed; (S, T) where the heads of a layer
            have S distinct top-k, in the order of `LayerHeads.top_ks`.
        config: settings of that run.
        top: links kept of each kind, layer and head.
        progress: called after each layer with the number done and the total; may raise to stop.

    Raises:
        InputError: layers or lengths do not fit together.
    """
    check_positions(model, len(ids))
    if any(bits.shape[-1] != len(ids) for bits in membership.values()):
        raise InputError("the groups and the tokens differ in number", expected=f"{len(ids)} of each")
    groups = {layer: torch.from_numpy(np.atleast_2d(bits))[:, None] for layer, bits in membership.items()}
    # The routers only mark which layers are focused; no groups are taken from them, so any will do.
    budget = tuple(entry for entry in config.budget if entry.layer in membership)
    routers = random_centroids(model, config.replace(layers=tuple(membership), budget=budget))
    focus = compose(model, routers, assignment="sinkhorn")
    layers: list[LayerAttention] = []

    def observe(layer: FocusLayer, query: Tensor, key: Tensor, scale: float, softcap: float | None) -> None:
        if layer.router is None:
            return
        masks = head_masks(
            layer.heads(counts_of(query, key)),
            groups[layer.index].to(query.device),
            focus.config,
            layer.sliding,
        )
        own = _by_head(query, key, masks, scale=scale, softcap=softcap, top=top)
        layers.append(LayerAttention(layer.index, *own))
        progress(len(layers), len(groups))

    try:
        if set(focus.focused_layers) != set(membership):
            raise InputError("the run's layers are not those this model attends in", fix="explore the text again")
        with torch.no_grad(), observe_attention(focus, observe):
            final_hidden(model, torch.tensor([ids], device=input_device(model)))
    finally:
        focus.detach()
    return layers


def _by_head(
    query: Tensor, key: Tensor, masks: Sequence[HeadMask], **how: Any
) -> tuple[NDArray[np.float64], Links, NDArray[np.float64]]:
    """`mass_and_links` of a layer whose heads may differ."""
    order: list[int] = []
    parts, weights = [], []
    counts = counts_of(query, key)
    for mask in masks:
        part = part_of(mask.group, counts)
        parts.append(mass_and_links(query[:, part.query], key[:, part.key], mask.membership, mask.rule, **how))
        own = query_numbers(mask.group, counts)
        weights.append(len(own))
        order += own
    back = np.argsort(order)
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
    """Shares by cause and strongest links of one sequence, in blocks of query rows.

    Args:
        query: (1, Hq, T, D); key: (1, Hkv, T, D).
        membership: (1, T) int64 bit sets.
        rule, scale, softcap: as in `mass_by_cause`.
        top: links kept of each kind and head.

    Returns:
        (Hq, 4) shares as in `mass_by_cause`, links and (T, 4) shares of single queries as in `LayerAttention`.
    """
    _, heads, length, _ = query.shape
    reach = rule.farthest(length) + 1
    rows = max(1, attention_mass.BLOCK_SCORES // (heads * length))
    by_query = torch.zeros(length, len(MASS_CAUSES), dtype=torch.float64, device=query.device)
    total = torch.zeros(heads, len(MASS_CAUSES), dtype=torch.float64, device=query.device)
    best = {kind: _Strongest(heads, top, length) for kind in LINK_KINDS}
    for start in range(0, length, rows):
        stop = min(start + rows, length)
        first = max(0, start - reach + 1)
        part = key[:, :, first:stop]
        weights = full_probabilities(query[:, :, start:stop], part, start - first, reach, scale, softcap)[0]
        causes = pair_causes(membership, slice(start, stop), slice(first, stop), rule)[0]
        shares = torch.einsum("hqk,qkc->hqc", weights, causes.to(weights.dtype)).double()
        total += shares.sum(dim=1)
        by_query[start:stop] = shares.mean(dim=0)
        for kind, cause in LINK_KINDS.items():
            best[kind].add(weights * causes[..., MASS_CAUSES.index(cause)], start, first)
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
