"""Attention of every method against its own definition, one query at a time in float64."""

from __future__ import annotations

import math

import pytest
import torch

from paper.methods import Call, Longformer, MagicPIG, Performer, RoutingTransformer, SparQ, Temperature
from paper.methods.magicpig import Hashes, draw_probability
from paper.methods.performer import random_features
from paper.methods.routing_transformer import Clusters


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("paper.methods.base.BLOCK", 6)


def run(method, query, key, value, state=None, scale=0.4, softcap=None):
    """The output and the call, which counted its pairs."""
    call = Call(query, key, value, scale, softcap, state)
    return method.attend(call), call


def random_heads(length, *, query_heads=4, key_heads=2, size=8, batch=2, dtype=torch.float64):
    """Queries, keys and values of fresh random numbers."""
    return (
        torch.randn(batch, query_heads, length, size, dtype=dtype),
        torch.randn(batch, key_heads, length, size, dtype=dtype),
        torch.randn(batch, key_heads, length, size, dtype=dtype),
    )


def every_query(query, key):
    """(batch, query head, key head, position) of every query."""
    group = query.shape[1] // key.shape[1]
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            for i in range(query.shape[2]):
                yield b, h, h // group, i


def score(query_row, key_row, scale, softcap):
    plain = float(query_row @ key_row) * scale
    return plain if softcap is None else softcap * math.tanh(plain / softcap)


def naive_attention(query, key, value, log_weight, *, scale=0.4, softcap=None):
    """Softmax over j <= i of the score plus log_weight(b, h, i, j), which is None where the pair is not read.

    Returns the output and the number of pairs read.
    """
    query, key, value = query.double(), key.double(), value.double()
    out, pairs = torch.zeros_like(query), 0
    for b, h, g, i in every_query(query, key):
        weights = [log_weight(b, h, i, j) for j in range(i + 1)]
        read = [j for j in range(i + 1) if weights[j] is not None]
        logits = [score(query[b, h, i], key[b, g, j], scale, softcap) + weights[j] for j in read]
        probabilities = torch.softmax(torch.tensor(logits, dtype=torch.float64), dim=0)
        out[b, h, i] = probabilities @ value[b, g, read]
        pairs += len(read)
    return out, pairs


def full_attention(query, key, value):
    return naive_attention(query, key, value, lambda *_: 0.0)[0]


# --- Longformer


@pytest.mark.parametrize(
    ("num_globals", "window", "softcap"),
    [(0, 0, None), (2, 0, 1.5), (2, 2, None), (0, 9, 1.5), (40, 2, None), (2, 50, None)],
)
def test_longformer_reads_near_pairs_and_pairs_with_a_global_token(fresh_seed, num_globals, window, softcap):
    query, key, value = random_heads(17, batch=1)
    out, call = run(Longformer(window=window, num_globals=num_globals), query, key, value, softcap=softcap)

    def allowed(b, h, i, j):
        return 0.0 if i - j <= window or j < num_globals else None

    expected, pairs = naive_attention(query, key, value, allowed, softcap=softcap)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    assert float(call.pairs) == pairs
    assert float(call.retained_pairs) == pytest.approx(pairs / (4 * 17 * 18 / 2))


# --- Performer


def feature_map(x, features):
    """FAVOR+ of one vector (equation 5 of the paper): exp(w x - |x|^2/2) / sqrt(m) for each of m features."""
    return torch.exp(features @ x - x @ x / 2) / math.sqrt(features.shape[0])


def naive_performer(query, key, value, features, scale):
    """Kernel-weighted mean of the values before each query, by its features, one pair at a time."""
    out, root = torch.zeros_like(query), math.sqrt(scale)
    for b, h, g, i in every_query(query, key):
        mapped = feature_map(query[b, h, i] * root, features)
        weights = torch.stack([mapped @ feature_map(key[b, g, j] * root, features) for j in range(i + 1)])
        out[b, h, i] = weights @ value[b, g, : i + 1] / weights.sum()
    return out


@pytest.mark.parametrize(("length", "count"), [(1, 5), (2, 40), (13, 40), (16, 5)])
def test_prefix_sums_are_the_quadratic_form_of_the_features(fresh_seed, length, count):
    query, key, value = random_heads(length, batch=1)
    features = torch.randn(count, 8, dtype=torch.float64)
    out, call = run(Performer(), query, key, value, features)
    torch.testing.assert_close(out, naive_performer(query, key, value, features, 0.4), rtol=1e-9, atol=1e-9)
    assert call.retained_pairs == 1.0


def test_performer_converges_to_softmax_attention(fresh_seed):
    query, key, value = random_heads(12, batch=1)
    query, key = query / 2, key / 2  # the variance grows with exp(|q + k|^2)
    generator = torch.Generator().manual_seed(fresh_seed)
    errors = []
    for count in (16, 16384):
        out, _ = run(Performer(), query, key, value, random_features(count, 8, generator).double())
        errors.append((out - full_attention(query, key, value)).abs().mean().item())
    assert errors[1] < 0.02
    assert errors[1] < errors[0] / 4  # 32 is what 1/sqrt(m) gives


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_large_and_unequal_norms_stay_finite(fresh_seed, direction):
    """Features differ by hundreds of orders of magnitude between tokens, later ones larger or smaller."""
    query, key, value = random_heads(64, batch=1, dtype=torch.float32)
    growing = torch.linspace(-3, 3, 64)[:, None] * direction
    query, key = query * 10, key * 10 ** (growing / 2)
    features = random_features(32, 8, torch.Generator().manual_seed(fresh_seed))
    out, _ = run(Performer(), query, key, value, features, scale=1.0)
    assert torch.isfinite(out).all()
    seen = value.repeat_interleave(2, 1).cummax(2).values
    assert (out <= seen + 1e-4).all()  # a weighted mean of values seen so far
    torch.testing.assert_close(out[:, :, 0], value.repeat_interleave(2, 1)[:, :, 0])


# --- Routing Transformer


def random_clusters(count=3, heads=2, size=8):
    clusters = Clusters.random(torch.nn.functional.normalize(torch.randn(heads, count, size), dim=-1))
    clusters.query_mean, clusters.key_mean = torch.randn(heads, 1, size) * 0.5, torch.randn(heads, 1, size) * 0.5
    return clusters


def unit(x):
    return x / x.norm()


def nearest(x, mean, centroids):
    """Cluster of one vector, centred, by the largest cosine."""
    values = [float(unit(x.double() - mean.double()) @ c.double()) for c in centroids]
    return values.index(max(values))


@pytest.mark.parametrize("softcap", [None, 1.5])
def test_routed_pairs_share_a_cluster_or_are_near(fresh_seed, softcap):
    query, key, value = random_heads(17, batch=1)
    clusters = random_clusters()

    def log_weight(b, h, i, j):
        g = h // 2
        of_query = nearest(query[b, h, i], clusters.query_mean[g, 0], clusters.centroids[g])
        of_key = nearest(key[b, g, j], clusters.key_mean[g, 0], clusters.centroids[g])
        return 0.0 if j < 1 or i - j <= 3 or of_query == of_key else None

    out, call = run(RoutingTransformer(window=3, num_sinks=1), query, key, value, clusters, softcap=softcap)
    expected, pairs = naive_attention(query, key, value, log_weight, softcap=softcap)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    assert float(call.pairs) == pairs


# --- SparQ


def naive_sparq(query, key, value, *, components, num_keys, num_local, reallocate, scale=0.4, softcap=None):
    """Step by step; heads of a group agree on components and keys by summing over the group."""
    out, group, size = torch.zeros_like(query), query.shape[1] // key.shape[1], query.shape[-1]
    pairs = 0
    for b in range(query.shape[0]):
        for g in range(key.shape[1]):
            heads = range(g * group, (g + 1) * group)
            for i in range(query.shape[2]):
                magnitude = sum(query[b, h, i].abs() for h in heads)
                chosen = sorted(range(size), key=lambda d: -magnitude[d])[:components]
                approximate = {}
                for h in heads:
                    q = query[b, h, i]
                    share = q[chosen].abs().sum() / q.abs().sum()
                    logits = [
                        score(q[chosen], key[b, g, j][chosen], scale / math.sqrt(share), softcap) for j in range(i + 1)
                    ]
                    approximate[h] = torch.softmax(torch.tensor(logits, dtype=torch.float64), 0)
                total = sum(approximate.values())
                order = sorted(range(i + 1), key=lambda j: (i - j >= num_local, -total[j]))
                kept = order[:num_keys]
                pairs += len(kept) * group
                for h in heads:
                    logits = [score(query[b, h, i], key[b, g, j], scale, softcap) for j in kept]
                    exact = torch.softmax(torch.tensor(logits, dtype=torch.float64), 0) @ value[b, g, kept]
                    alpha = approximate[h][kept].sum() if reallocate else 1.0
                    out[b, h, i] = alpha * exact + (1 - alpha) * value[b, g, : i + 1].mean(0)
    return out, pairs


@pytest.mark.parametrize(
    ("heads", "components", "num_keys", "num_local", "reallocate"),
    [
        ((4, 2), 3, 5, 2, True),
        ((4, 2), 2, 30, 3, False),
        ((2, 2), 1, 1, 0, True),
        ((2, 2), 3, 5, 2, False),
        ((3, 1), 8, 4, 4, True),
        ((3, 1), 1, 1, 0, False),
    ],
)
def test_sparq_is_algorithm_1(fresh_seed, heads, components, num_keys, num_local, reallocate):
    query, key, value = random_heads(13, query_heads=heads[0], key_heads=heads[1], batch=1)
    settings = {"components": components, "num_keys": num_keys, "num_local": num_local, "reallocate": reallocate}
    softcap = 1.2 if reallocate else None
    out, call = run(SparQ(**settings), query, key, value, softcap=softcap)
    expected, pairs = naive_sparq(query, key, value, **settings, softcap=softcap)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    assert float(call.pairs) == pairs


# --- MagicPIG


def agreeing_tables(a, b, planes):
    return sum(all(bool(plane @ a > 0) == bool(plane @ b > 0) for plane in table) for table in planes.to(a.dtype))


def clear_planes(tables, bits, vectors, generator):
    """Hyperplanes with no vector so close that rounding to fp32 could put it on the other side."""
    while True:
        planes = torch.randn(tables, bits, 8, generator=generator)
        if (torch.einsum("...d,lkd->...lk", vectors, planes.double()).abs() > 1e-5).all():
            return planes


def probability(a, b, tables, bits, least=2):
    """By the binomial distribution of tables that agree."""
    cosine = float(a @ b / (a.norm() * b.norm()))
    once = (1 - math.acos(max(-1.0, min(1.0, cosine))) / math.pi) ** bits
    return sum(math.comb(tables, m) * once**m * (1 - once) ** (tables - m) for m in range(least, tables + 1))


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("bits", [3, 9])
def test_drawn_keys_carry_minus_the_logarithm_of_their_probability(fresh_seed, softcap, bits):
    query, key, value = random_heads(15, batch=1)
    query = query + key.repeat_interleave(2, 1)  # alike enough that nine bits agree now and then
    centre = torch.randn(2, 1, 8) * 0.3
    planes = clear_planes(12, bits, torch.cat([query, key - centre], 1), torch.Generator().manual_seed(fresh_seed))

    def log_weight(b, h, i, j):
        if i - j <= 2 or j < 1:
            return 0.0
        q, k = query[b, h, i], key[b, h // 2, j] - centre[h // 2, 0]
        return None if agreeing_tables(q, k, planes) < 2 else -math.log(probability(q, k, 12, bits))

    method = MagicPIG(bits=bits, tables=12, window=2, num_sinks=1)
    out, call = run(method, query, key, value, Hashes(planes, centre), softcap=softcap)
    expected, pairs = naive_attention(query, key, value, log_weight, softcap=softcap)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)  # weights are computed in fp32
    assert float(call.pairs) == pairs


@pytest.mark.parametrize(("tables", "bits"), [(2, 1), (75, 8), (150, 10), (300, 15)])
def test_the_probability_is_the_binomial_tail(tables, bits):
    for cosine in (-1.0, -0.9, 0.0, 0.7, 0.99, 1.0):
        actual = draw_probability(torch.tensor([cosine]), tables, bits).item()
        direction = torch.tensor([cosine, math.sqrt(1 - float(torch.tensor(cosine)) ** 2)], dtype=torch.float64)
        exact = probability(torch.tensor([1.0, 0.0], dtype=torch.float64), direction, tables, bits)
        assert actual == pytest.approx(exact, rel=2e-4, abs=1e-300), cosine


# --- temperature


@pytest.mark.parametrize(
    ("far_only", "drop_far", "window", "num_sinks", "softcap"),
    [
        (False, False, 4, 3, None),
        (True, False, 0, 0, 1.5),
        (True, False, 4, 3, None),
        (True, False, 60, 2, None),
        (False, True, 0, 0, None),
        (False, True, 4, 3, 1.5),
    ],
)
def test_values_and_gradients_of_factors_are_those_of_the_definition(
    fresh_seed, far_only, drop_far, window, num_sinks, softcap
):
    inputs = [x.requires_grad_() for x in random_heads(23)]
    factors = (0.2 + 2 * torch.rand(4, dtype=torch.float64)).requires_grad_()
    method = Temperature(far_only=far_only, window=window, num_sinks=num_sinks, drop_far=drop_far)
    out, call = run(method, *inputs, factors, softcap=softcap)
    weights = torch.randn_like(out)
    gradients = torch.autograd.grad((out * weights).sum(), [*inputs, factors])

    i, j = torch.arange(23)[:, None], torch.arange(23)[None]
    far = (i - j > window) & (j >= num_sinks)
    query, key, value = inputs
    scores = query @ key.repeat_interleave(2, 1).transpose(-1, -2) * 0.4
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    multiplied = scores * factors[:, None, None]
    scores = torch.where(far, multiplied, scores) if far_only else multiplied
    hidden = (j > i) | (far & drop_far)
    dense = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ value.repeat_interleave(2, 1)
    torch.testing.assert_close(out, dense, rtol=1e-9, atol=1e-9)
    expected = torch.autograd.grad((dense * weights).sum(), [*inputs, factors])
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)
    assert float(call.retained_pairs) == pytest.approx(float((~hidden).sum()) / (23 * 24 / 2))
