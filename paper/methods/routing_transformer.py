"""Routing Transformer: attention inside clusters that online k-means finds (Roy et al. 2021, arXiv 2003.05997).

What differs from the paper, because the model is frozen and was not trained for it:
- every head reads its cluster and a local window, where the paper gives half of the heads a window and half clusters
  (`heads="split"`);
- queries and keys are separate vectors, where the paper shares them; each kind is centred on its own running mean
  before it is normalised (`centre`), without which many clusters hold only queries or only keys;
- a token's cluster is its nearest centroid (`selection="argmax"`). The paper's balanced clusters, the T/C nearest
  tokens of every centroid (`selection="balanced"`), depend on later tokens: that is no causal model, and a perplexity
  measured with it is not comparable.
Clusters are per layer and key-value head, on what enters attention, after any rotary embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from paper.methods.checks import check_between, check_choice, check_flag, check_heads, check_whole
from paper.methods.pairs import Reading, attend_pairs, distances, grouped, query_blocks
from paper.methods.replace import AttentionBaseline

SELECTIONS = ("argmax", "balanced")
HEADS = ("combined", "split")


@dataclass(slots=True, eq=False)
class Clusters:
    """Centroids of one layer and what was observed since they were last moved.

    Attributes:
        centroids: (Hkv, C, D), of length 1.
        query_mean, key_mean: (Hkv, 1, D), subtracted before queries and keys are normalised.
        sums: (Hkv, C, D) of the normalised vectors nearest to each centroid; counts: (Hkv, C, 1).
        means: observed means of queries and keys with the weight of the tokens behind them; None before any.
        seen: whether a first text has placed the centroids.
    """

    centroids: Tensor
    query_mean: Tensor
    key_mean: Tensor
    sums: Tensor
    counts: Tensor
    means: tuple[Tensor, Tensor, int] | None = None
    seen: bool = False

    @classmethod
    def random(cls, heads: int, clusters: int, size: int, generator: torch.Generator) -> Clusters:
        """Random directions, fp32, and nothing observed.

        Args:
            heads: Hkv.
            clusters: C.
            size: D.
            generator: on the CPU.
        """
        centroids = normalize(torch.randn(heads, clusters, size, generator=generator), dim=-1)
        zeros = torch.zeros(heads, 1, size)
        sums = torch.zeros_like(centroids)
        return cls(centroids, zeros, zeros.clone(), sums, torch.zeros(heads, clusters, 1))

    def to(self, device: torch.device) -> Clusters:
        """Move the tensors, in place."""
        for name in ("centroids", "query_mean", "key_mean", "sums", "counts"):
            setattr(self, name, getattr(self, name).to(device))
        return self


def routing_vectors(query: Tensor, key: Tensor, clusters: Clusters) -> tuple[Tensor, Tensor]:
    """What is clustered: centred and normalised queries and keys.

    Args:
        query: (B, Hq, T, D).
        key: (B, Hkv, T, D).
        clusters: their means are subtracted.

    Returns:
        (B, Hkv, G, T, D) and (B, Hkv, 1, T, D) fp32, of length 1.
    """
    query, key = grouped(query, key).float(), key.float()[:, :, None]
    return (
        normalize(query - clusters.query_mean[:, None], dim=-1),
        normalize(key - clusters.key_mean[:, None], dim=-1),
    )


def memberships(vectors: Tensor, centroids: Tensor, selection: str) -> Tensor:
    """Clusters of every vector.

    Args:
        vectors: (B, Hkv, G, T, D).
        centroids: (Hkv, C, D).
        selection: with "argmax" each vector has one cluster; with "balanced" each cluster has the ceil(T/C) nearest
            vectors, so that a vector may be in several clusters or in none.

    Returns:
        (B, Hkv, G, T, C) bool.
    """
    scores = vectors @ centroids[:, None].transpose(-1, -2)
    count = centroids.shape[1]
    if selection == "argmax":
        return one_hot(scores.argmax(dim=-1), count).bool()
    nearest = scores.topk(math.ceil(scores.shape[-2] / count), dim=-2).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-2, nearest, True)


def routing_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    clusters: Clusters,
    *,
    window: int,
    num_sinks: int = 0,
    selection: str = "argmax",
    heads: str = "combined",
    scale: float | None = None,
    softcap: float | None = None,
    reading: Reading | None = None,
) -> Tensor:
    """Causal attention over pairs that share a cluster or are near. Clusters get no gradient.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        clusters: of the layer, on query's device.
        window: pairs with i - j <= window are allowed.
        num_sinks: keys j < num_sinks are allowed; the paper has none.
        selection: "argmax" or "balanced", see `memberships`.
        heads: "combined", or "split": the first half of the key-value heads, rounded down, reads the window alone and
            the others read their cluster, the token itself and the sinks.
        scale: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap).
        reading: counts the pairs read.

    Returns:
        (B, Hq, T, D).
    """
    check_heads(query, key, value)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    with torch.no_grad():
        vectors = routing_vectors(query, key, clusters)
        of_query, of_key = (memberships(x, clusters.centroids, selection).to(query.dtype) for x in vectors)
    reach, clustered = _head_kinds(key.shape[1], window, heads, query.device)
    outs = []
    for start, stop in query_blocks(query.shape[2]):
        distance = distances(start, stop, stop, query.device)
        sinks = torch.arange(stop, device=query.device) < num_sinks
        near = (distance <= reach) | sinks
        shared = (of_query[..., start:stop, :] @ of_key[..., :stop, :].transpose(-1, -2)) > 0
        allowed = ((distance >= 0) & (near | (clustered & shared))).flatten(1, 2)
        rows = query[:, :, start:stop]
        outs.append(attend_pairs(rows, key[:, :, :stop], value[:, :, :stop], allowed, scale=scale, softcap=softcap))
        if reading is not None:
            reading.add(allowed, rows, start)
    return torch.cat(outs, dim=2)


def _head_kinds(count: int, window: int, heads: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """Window, and whether clusters are read, of every key-value head: (Hkv, 1, 1, 1) each."""
    local = torch.arange(count, device=device)[:, None, None, None] < count // 2
    if heads == "combined":
        return torch.full_like(local, window, dtype=torch.int64), torch.ones_like(local)
    return torch.where(local, window, 0), ~local


def observe_clusters(clusters: Clusters, query: Tensor, key: Tensor, *, centre: bool, seed: int) -> None:
    """Add one pass's queries and keys to the sums of their nearest centroids; the first pass places the centroids.

    They start at the keys of tokens drawn at random.

    Args:
        clusters: changed in place.
        query: (B, Hq, T, D).
        key: (B, Hkv, T, D).
        centre: also follow the means of queries and of keys.
        seed: of the tokens drawn.
    """
    tokens = query.shape[0] * query.shape[2]
    if centre:
        means = (grouped(query, key).float().mean(dim=(0, 2, 3))[:, None], key.float().mean(dim=(0, 2))[:, None])
        old = clusters.means
        if old is not None:
            total = old[2] + tokens
            means = tuple((a * old[2] + b * tokens) / total for a, b in zip(old[:2], means, strict=True))  # type: ignore[assignment]
        clusters.means = (*means, tokens + (old[2] if old is not None else 0))
        if not clusters.seen:
            clusters.query_mean, clusters.key_mean = means
    vectors = routing_vectors(query, key, clusters)
    if not clusters.seen:
        heads, count = clusters.centroids.shape[:2]
        keys = vectors[1].transpose(0, 1).flatten(1, 3)
        generator = torch.Generator().manual_seed(seed)
        for head in range(heads):
            drawn = torch.randperm(keys.shape[1], generator=generator)[:count].to(keys.device)
            clusters.centroids[head, : drawn.numel()] = keys[head, drawn]
        clusters.seen = True
    for part in vectors:
        nearest = memberships(part, clusters.centroids, "argmax").float()
        clusters.sums += (nearest.transpose(-1, -2) @ part).sum(dim=(0, 2))
        clusters.counts += nearest.sum(dim=(0, 2, 3))[..., None]


def settle_clusters(clusters: Clusters, decay: float) -> None:
    """Move centroids towards the mean of what was nearest to them: c <- decay c + (1 - decay) mean, of length 1 again.

    Centroids without a vector stay. The means that are subtracted follow in the same way.
    """
    occupied = clusters.counts > 0
    mean = clusters.sums / clusters.counts.clamp_min(1)
    moved = normalize(decay * clusters.centroids + (1 - decay) * mean, dim=-1)
    clusters.centroids = torch.where(occupied, moved, clusters.centroids)
    if clusters.means is not None:
        clusters.query_mean = decay * clusters.query_mean + (1 - decay) * clusters.means[0]
        clusters.key_mean = decay * clusters.key_mean + (1 - decay) * clusters.means[1]
    clusters.means = None
    clusters.sums, clusters.counts = torch.zeros_like(clusters.sums), torch.zeros_like(clusters.counts)


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutingTransformer(AttentionBaseline):
    """Settings. Without a text at `attach` and without training the centroids are random directions.

    Attributes:
        num_clusters: C.
        window: pairs with i - j <= window are allowed.
        num_sinks: first tokens that every token may attend to; the paper has none.
        selection: "argmax" or "balanced", which looks ahead.
        heads: "combined" or "split", see `routing_attention`.
        centre: subtract the running means of queries and of keys.
        decay: of the moving average; the paper's 0.999 is for hundreds of thousands of steps.
        seed: of the first centroids.
    """

    name: ClassVar[str] = "routing_transformer"
    num_clusters: int = 8
    window: int = 128
    num_sinks: int = 0
    selection: str = "argmax"
    heads: str = "combined"
    centre: bool = True
    decay: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, num_clusters=1, window=0, num_sinks=0, seed=0)
        check_choice(self, "selection", SELECTIONS)
        check_choice(self, "heads", HEADS)
        check_flag(self, "centre")
        check_between(self, "decay", 0.0, 1.0)

    def start(self, index: int, query: Tensor, key: Tensor) -> Clusters:
        """See `AttentionBaseline.start`."""
        generator = torch.Generator().manual_seed(self.seed * 1000 + index)
        return Clusters.random(key.shape[1], self.num_clusters, key.shape[3], generator).to(query.device)

    def observe(self, state: Clusters, query: Tensor, key: Tensor) -> None:
        """See `AttentionBaseline.observe`."""
        observe_clusters(state, query, key, centre=self.centre, seed=self.seed)

    def settle(self, state: Clusters) -> None:
        """See `AttentionBaseline.settle`."""
        if state.counts.any():
            settle_clusters(state, self.decay)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        state: Any,
        scale: float,
        softcap: float | None,
        reading: Reading,
    ) -> Tensor:
        """See `AttentionBaseline.attend`."""
        return routing_attention(
            query,
            key,
            value,
            state.to(query.device),
            window=self.window,
            num_sinks=self.num_sinks,
            selection=self.selection,
            heads=self.heads,
            scale=scale,
            softcap=softcap,
            reading=reading,
        )
