"""Routing Transformer: clusters and their moving averages by loops, attention by its mask."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.errors import ConfigError
from paper.methods import RoutingTransformer
from paper.methods.pairs import Reading
from paper.methods.routing_transformer import (
    Clusters,
    observe_clusters,
    routing_attention,
    settle_clusters,
)
from tests.paper.methods.naive import naive_attention, random_heads


def random_clusters(count=3, heads=2, size=8):
    clusters = Clusters.random(heads, count, size, torch.Generator().manual_seed(torch.initial_seed() % 2**31))
    clusters.query_mean, clusters.key_mean = torch.randn(heads, 1, size) * 0.5, torch.randn(heads, 1, size) * 0.5
    return clusters


def unit(x):
    return x / x.norm()


def similarities(x, mean, centroids):
    """Cosine of one vector, centred, with every centroid."""
    return [float(unit(x.double() - mean.double()) @ c.double()) for c in centroids]


def nearest(x, mean, centroids):
    values = similarities(x, mean, centroids)
    return values.index(max(values))


def clusters_of(x, mean, centroids, selection):
    """Set of clusters of each of T vectors."""
    if selection == "argmax":
        return [{nearest(row, mean, centroids)} for row in x]
    values = [similarities(row, mean, centroids) for row in x]
    clusters = [set() for _ in x]
    for cluster in range(len(centroids)):
        order = sorted(range(len(x)), key=lambda t: -values[t][cluster])
        for t in order[: math.ceil(len(x) / len(centroids))]:
            clusters[t].add(cluster)
    return clusters


@pytest.mark.parametrize("selection", ["argmax", "balanced"])
@pytest.mark.parametrize("heads", ["combined", "split"])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_pairs_share_a_cluster_or_are_near(fresh_seed, monkeypatch, selection, heads, softcap):
    monkeypatch.setattr("paper.methods.pairs.BLOCK", 6)
    query, key, value = random_heads(17)
    clusters = random_clusters()
    means, centroids = (clusters.query_mean, clusters.key_mean), clusters.centroids
    of_query = {
        (b, h): clusters_of(query[b, h], means[0][h // 2, 0], centroids[h // 2], selection)
        for b in range(2)
        for h in range(4)
    }
    of_key = {
        (b, g): clusters_of(key[b, g], means[1][g, 0], centroids[g], selection) for b in range(2) for g in range(2)
    }

    def log_weight(b, h, i, j):
        together = bool(of_query[b, h][i] & of_key[b, h // 2][j])
        local = heads == "split" and h // 2 == 0
        window = 3 if heads == "combined" or local else 0
        return 0.0 if j < 1 or i - j <= window or (together and not local) else None

    reading = Reading()
    out = routing_attention(
        query,
        key,
        value,
        clusters,
        window=3,
        num_sinks=1,
        selection=selection,
        heads=heads,
        scale=0.5,
        softcap=softcap,
        reading=reading,
    )
    expected, pairs = naive_attention(query, key, value, log_weight, scale=0.5, softcap=softcap)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    assert float(reading.pairs) == pairs
    assert 0 < reading.retained_pairs < 1


@pytest.mark.parametrize("selection", ["argmax", "balanced"])
def test_only_argmax_never_looks_ahead(fresh_seed, selection):
    query, key, value = random_heads(40)
    clusters = random_clusters()
    changed = [torch.cat([x[:, :, :20], torch.randn_like(x[:, :, 20:])], 2) for x in (query, key, value)]
    one = routing_attention(query, key, value, clusters, window=1, selection=selection)
    other = routing_attention(*changed, clusters, window=1, selection=selection)
    assert torch.allclose(one[:, :, :20], other[:, :, :20]) == (selection == "argmax")


@pytest.mark.parametrize("centre", [True, False])
def test_centroids_follow_the_mean_of_their_vectors(fresh_seed, centre):
    clusters = random_clusters(count=4)
    clusters.seen = True
    start = {name: getattr(clusters, name).clone() for name in ("centroids", "query_mean", "key_mean")}
    passes = [random_heads(11)[:2] for _ in range(2)]
    for query, key in passes:
        observe_clusters(clusters, query, key, centre=centre, seed=0)
    settle_clusters(clusters, 0.7)
    for g in range(2):
        old = start["centroids"][g]
        members = [[] for _ in range(4)]
        kinds = {"query_mean": [], "key_mean": []}
        for query, key in passes:
            for b in range(2):
                kinds["query_mean"] += [*query[b, 2 * g], *query[b, 2 * g + 1]]
                kinds["key_mean"] += [*key[b, g]]
        for name, rows in kinds.items():
            for row in rows:
                mean = start[name][g, 0].double()
                members[nearest(row, mean, old)].append(unit(row - mean))
            expected = (
                0.7 * start[name][g, 0].double() + 0.3 * torch.stack(rows).mean(0) if centre else start[name][g, 0]
            )
            torch.testing.assert_close(getattr(clusters, name)[g, 0].double(), expected.double(), rtol=1e-4, atol=1e-5)
        for c in range(4):
            moved = old[c].double()
            if members[c]:
                moved = unit(0.7 * moved + 0.3 * torch.stack(members[c]).mean(0))
            torch.testing.assert_close(clusters.centroids[g, c].double(), moved, rtol=1e-4, atol=1e-5)
    assert clusters.counts.sum() == 0


def test_the_first_text_places_the_centroids_on_its_keys(fresh_seed):
    query, key, _ = random_heads(11)
    clusters = Clusters.random(2, 4, 8, torch.Generator())
    observe_clusters(clusters, query, key, centre=True, seed=3)
    centred = key.float() - key.float().mean(dim=(0, 2))[:, None]
    directions = centred / centred.norm(dim=-1, keepdim=True)
    for g in range(2):
        agreement = clusters.centroids[g] @ directions[:, g].flatten(0, 1).T
        assert torch.allclose(agreement.max(-1).values, torch.ones(4), atol=1e-5)
        assert agreement.argmax(-1).unique().numel() == 4


def test_online_k_means_finds_separated_clusters(fresh_seed):
    """Vectors around four far directions end up with four centroids on them, each begun nearest to its own."""
    centres = torch.eye(8)[:4]
    clusters = Clusters.random(1, 4, 8, torch.Generator())
    clusters.centroids = torch.nn.functional.normalize(centres + 0.15 * torch.randn(4, 8), dim=-1)[None].clone()
    clusters.seen = True
    for _ in range(30):
        rows = centres[torch.randint(4, (1, 1, 64))] + 0.05 * torch.randn(1, 1, 64, 8)
        observe_clusters(clusters, rows, rows, centre=False, seed=0)
        settle_clusters(clusters, 0.7)
    assert ((clusters.centroids[0] @ centres.T).max(dim=0).values > 0.98).all()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"num_clusters": 0}, "num_clusters"),
        ({"selection": "top"}, "selection"),
        ({"heads": "half"}, "heads"),
        ({"decay": 1.0}, "decay"),
        ({"decay": True}, "decay"),
        ({"centre": 1}, "centre"),
        ({"window": -1}, "window"),
    ],
)
def test_bad_settings_are_named(settings, name):
    with pytest.raises(ConfigError, match=name):
        RoutingTransformer(**settings)
