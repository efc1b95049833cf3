"""Strongest links and mass by head against dense attention weights in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure import attention_mass
from focus_runtime.measure.attention_mass import (
    LINK_KINDS,
    mass_and_links,
    mass_under_groups,
    measure_attention,
    pair_causes,
)
from tests.helpers import build_centroids, build_model, random_ids


def dense(query, key, scale, sliding=10**9):
    """(H, T, T) float64 probabilities."""
    heads, length = query.shape[1], query.shape[2]
    scores = query[0] @ key[0].repeat_interleave(heads // key.shape[1], dim=0).transpose(-1, -2) * scale
    distance = torch.arange(length)[:, None] - torch.arange(length)
    return scores.masked_fill((distance < 0) | (distance >= sliding), float("-inf")).softmax(dim=-1).numpy()


def sorted_links(weights, membership, window, sinks, kind):
    """(probability, query, key) of one head, strongest first, by a double loop."""
    length = weights.shape[0]
    links = []
    for i in range(length):
        for j in range(sinks, max(sinks, i - window)):
            shared = bool(int(membership[i]) & int(membership[j]))
            if shared == (kind == "kept") and weights[i, j] > 0:
                links.append((float(weights[i, j]), i, j))
    return sorted(links, reverse=True)


@pytest.mark.parametrize("scores_at_once", [1, 3000, 1 << 22])
@pytest.mark.parametrize("sliding", [None, 15])
def test_links_are_the_largest_of_a_dense_computation(monkeypatch, fresh_seed, scores_at_once, sliding):
    monkeypatch.setattr(attention_mass, "BLOCK_SCORES", scores_at_once)
    generator = torch.Generator().manual_seed(fresh_seed)
    query = torch.randn(1, 4, 33, 8, generator=generator, dtype=torch.float64)
    key = torch.randn(1, 2, 33, 8, generator=generator, dtype=torch.float64)
    membership = 1 << torch.randint(0, 3, (1, 33), generator=generator)
    weights = dense(query, key, 0.7, sliding or 10**9)
    shares, links, queries = mass_and_links(query, key, membership, PairRule(4, 2, sliding), scale=0.7, top=20)
    assert np.allclose(queries.sum(axis=1), 1.0)
    assert np.allclose(queries.mean(axis=0), shares.mean(axis=0))
    causes = pair_causes(membership, slice(0, 33), slice(0, 33), PairRule(4, 2))[0].numpy()
    assert np.allclose(queries, np.einsum("hqk,qkc->qc", weights, causes) / 4, atol=1e-6)
    for kind in LINK_KINDS:
        queries, keys, values = links[kind]
        for head in range(4):
            expected = sorted_links(weights[head], membership[0], 4, 2, kind)
            some = values[head] > 0
            assert some.sum() == min(20, len(expected))
            pairs = list(zip(queries[head][some], keys[head][some], strict=True))
            assert pairs == [(i, j) for _, i, j in expected[:20]]
            np.testing.assert_allclose(values[head][some], [p for p, _, _ in expected[:20]], atol=1e-14)
    for head in range(4):
        mass = sum(p for p, _, _ in sorted_links(weights[head], membership[0], 4, 2, "dropped")) / 33
        assert shares[head, 3] == pytest.approx(mass, abs=1e-12)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-12)


@torch.no_grad()
def test_a_models_links_are_those_of_its_eager_attention(fresh_seed, near_ties):
    """Tolerance: eager attention takes its softmax in float32, whatever the model's type."""
    model = build_model(seed=fresh_seed).double()
    ids = random_ids(50, seed=fresh_seed)
    weights = model(input_ids=ids, use_cache=False, output_attentions=True).attentions
    focus = compose(model, build_centroids(model, seed=fresh_seed, num_groups=5, top_k=2, window=3, num_sinks=2))
    model(input_ids=ids, use_cache=False)
    membership = {index: layers.membership[0].numpy() for index, layers in focus.assignments().items()}
    config = focus.config
    shares = mass_under_groups(focus, ids, focus.head_masks())[0]
    focus.detach()
    before = model(input_ids=ids, use_cache=False).logits
    steps = []
    layers = measure_attention(model, ids[0].tolist(), membership, config, top=9, progress=lambda *s: steps.append(s))
    assert torch.equal(model(input_ids=ids, use_cache=False).logits, before)
    assert steps == [(1, 2), (2, 2)]
    for row, layer in enumerate(layers):
        np.testing.assert_allclose(layer.shares, shares[row].numpy(), atol=1e-12)
        for kind in LINK_KINDS:
            for head in range(4):
                queries, keys, values = (part[head] for part in layer.links[kind])
                dense_weights = weights[layer.layer][0, head].numpy()
                expected = sorted_links(dense_weights, membership[layer.layer], 3, 2, kind)[:9]
                here = values > 0  # a text with few pairs of a kind fills the rest with zeros
                assert here.sum() == len(expected)
                np.testing.assert_allclose(values[here], [p for p, _, _ in expected], atol=1e-6)
                np.testing.assert_allclose(values[here], dense_weights[queries[here], keys[here]], atol=1e-6)


def test_a_prefix_has_the_same_attention_as_within_the_whole(tiny_model):
    """A cap on the text changes nothing of what is measured of the tokens before it."""
    model, ids = tiny_model.double(), random_ids(60)[0].tolist()
    bits = np.full(60, 1, dtype=np.int64)
    bits[::2] = 2
    config = FocusConfig(num_groups=4, top_k=1, window=2, num_sinks=1)
    whole = measure_attention(model, ids, {1: bits}, config, top=4000)[0]
    part = measure_attention(model, ids[:30], {1: bits[:30]}, config, top=4000)[0]
    queries, _, values = whole.links["dropped"]
    inside = np.sort(values[0][(queries[0] < 30) & (values[0] > 0)])
    np.testing.assert_allclose(np.sort(part.links["dropped"][2][0][part.links["dropped"][2][0] > 0]), inside)
    assert part.layer == 1


def test_lengths_that_differ_are_refused(tiny_model):
    with pytest.raises(InputError, match="expected 3 of each"):
        measure_attention(tiny_model, [5, 6, 7], {0: np.ones(2, dtype=np.int64)}, FocusConfig(num_groups=4))
