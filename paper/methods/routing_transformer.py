"""Routing Transformer: attention inside clusters that online k-means finds (Roy et al. 2021, arXiv 2003.05997).

What differs from the paper, because the model is frozen and was not trained for it:
- every head reads its cluster and a local window, where the paper gives half of the heads a window and half clusters;
- queries and keys are separate vectors, where the paper shares them; each kind is centred on its own running mean
  before it is normalised, without which many clusters hold only queries or only keys;
- a token's cluster is its nearest centroid. The paper's balanced clusters, the T/C nearest tokens of every centroid,
  depend on later tokens: that is no causal model, and a perplexity measured with it is not comparable.
Clusters are per layer and key-value head, on what enters attention, after any rotary embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from paper.methods.base import Call, Method

DECAY = 0.9  # of the moving averages; the paper's 0.999 is for hundreds of thousands of steps


@dataclass(slots=True, eq=False)
class Clusters:
    """Centroids of one layer and what was observed since they were last moved.

    Attributes:
        centroids: (Hkv, C, D), of length 1.
        query_mean, key_mean: (Hkv, 1, D), subtracted before queries and keys are normalised.
        sums: (Hkv, C, D) of the normalised vectors nearest to each centroid; counts: (Hkv, C, 1).
        query_sum, key_sum: (Hkv, 1, D) of the observed vectors, as means times `tokens`.
        seen: whether a first text has placed the centroids.
    """

    centroids: Tensor
    query_mean: Tensor
    key_mean: Tensor
    sums: Tensor
    counts: Tensor
    query_sum: Tensor
    key_sum: Tensor
    tokens: int = 0
    seen: bool = False

    @classmethod
    def random(cls, centroids: Tensor) -> Clusters:
        """Given directions, (Hkv, C, D), and nothing observed."""
        zeros = torch.zeros_like(centroids[:, :1])
        counts = torch.zeros_like(centroids[..., :1])
        return cls(centroids, zeros, zeros, torch.zeros_like(centroids), counts, zeros, zeros)

    def vectors(self, call: Call) -> tuple[Tensor, Tensor]:
        """What is clustered: centred and normalised queries (B, Hkv, G, T, D) and keys (B, Hkv, 1, T, D), fp32."""
        query, key = call.grouped_query().float(), call.key.float()[:, :, None]
        return (normalize(query - self.query_mean[:, None], dim=-1), normalize(key - self.key_mean[:, None], dim=-1))

    def nearest(self, vectors: Tensor) -> Tensor:
        """(B, Hkv, G, T, C) one-hot cluster of every vector."""
        scores = vectors @ self.centroids[:, None].transpose(-1, -2)
        return one_hot(scores.argmax(dim=-1), self.centroids.shape[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutingTransformer(Method):
    """Causal attention over pairs that share a cluster, are near (i - j <= `window`) or have a sink as key.

    Clusters get no gradient. Without a text at `attach` and without training they are random directions. The paper has
    no sinks.
    """

    num_clusters: int = 8
    window: int = 128
    num_sinks: int = 0
    seed: int = 0

    def start(self, index: int, query: Tensor, key: Tensor) -> Clusters:
        generator = torch.Generator().manual_seed(self.seed * 1000 + index)
        drawn = torch.randn(key.shape[1], self.num_clusters, key.shape[3], generator=generator)
        return Clusters.random(normalize(drawn, dim=-1).to(query.device))

    def attend(self, call: Call) -> Tensor:
        with torch.no_grad():
            clusters: Clusters = call.state
            of_query, of_key = (clusters.nearest(part).to(call.query.dtype) for part in clusters.vectors(call))
        outs = []
        for rows in call.blocks():
            distance = call.distance(rows)
            sinks = torch.arange(rows.stop, device=distance.device) < self.num_sinks
            shared = (of_query[..., rows, :] @ of_key[..., : rows.stop, :].transpose(-1, -2)) > 0
            allowed = (distance >= 0) & ((distance <= self.window) | sinks | shared)
            outs.append(call.over_pairs(rows, allowed.flatten(1, 2)))
        return torch.cat(outs, dim=2)

    def observe(self, call: Call) -> None:
        """Add queries and keys to the sums of their nearest centroids; the first pass places these on random keys."""
        clusters: Clusters = call.state
        tokens = call.query.shape[0] * call.query.shape[2]
        query_mean = call.grouped_query().float().mean(dim=(0, 2, 3))[:, None]
        key_mean = call.key.float().mean(dim=(0, 2))[:, None]
        clusters.query_sum = clusters.query_sum + query_mean * tokens
        clusters.key_sum = clusters.key_sum + key_mean * tokens
        clusters.tokens += tokens
        if not clusters.seen:
            clusters.query_mean, clusters.key_mean, clusters.seen = query_mean, key_mean, True
            keys = clusters.vectors(call)[1].transpose(0, 1).flatten(1, 3)
            generator = torch.Generator().manual_seed(self.seed)
            for head in range(keys.shape[0]):
                drawn = torch.randperm(keys.shape[1], generator=generator)[: self.num_clusters].to(keys.device)
                clusters.centroids[head, : drawn.numel()] = keys[head, drawn]
        for part in clusters.vectors(call):
            nearest = clusters.nearest(part).float()
            clusters.sums = clusters.sums + (nearest.transpose(-1, -2) @ part).sum(dim=(0, 2))
            clusters.counts = clusters.counts + nearest.sum(dim=(0, 2, 3))[..., None]

    def settle(self, state: Clusters) -> None:
        """Move centroids towards the mean of what was nearest to them: c <- decay c + (1 - decay) mean, of length 1.

        Centroids without a vector stay. The means that are subtracted follow in the same way.
        """
        if not state.tokens:
            return
        mean = state.sums / state.counts.clamp_min(1)
        moved = normalize(DECAY * state.centroids + (1 - DECAY) * mean, dim=-1)
        state.centroids = torch.where(state.counts > 0, moved, state.centroids)
        state.query_mean = DECAY * state.query_mean + (1 - DECAY) * state.query_sum / state.tokens
        state.key_mean = DECAY * state.key_mean + (1 - DECAY) * state.key_sum / state.tokens
        state.sums, state.counts = torch.zeros_like(state.sums), torch.zeros_like(state.counts)
        state.query_sum, state.key_sum = torch.zeros_like(state.query_sum), torch.zeros_like(state.key_sum)
        state.tokens = 0
