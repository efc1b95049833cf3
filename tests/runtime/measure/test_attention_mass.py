"""Mass by cause and strongest links against dense sums in float64 over the weights that eager attention returns."""

from __future__ import annotations

import itertools

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
    attention_mass_kept,
    mass_and_links,
    mass_by_cause,
    mass_under_groups,
    measure_attention,
    pair_causes,
)
from focus_runtime.models.structure import attention_modules
from tests.helpers import build_centroids, build_model, random_ids

FAMILIES = ["Llama", "GPT2", "Mistral", "Qwen3", "Gemma2", "Olmo2", "Phi3"]


def dense_shares(weights, membership, window, sinks):
    """(N, H, 4) by a double loop over (N, H, T, T) float64 weights and (N, T) bit sets."""
    number, heads, length, _ = weights.shape
    shares = np.zeros((number, heads, 4))
    for n in range(number):
        groups = membership[n].tolist()
        for i in range(length):
            for j in range(i + 1):
                shared = groups[i] & groups[j]
                cause = 0 if i - j <= window else 1 if j < sinks else 2 if shared else 3
                shares[n, :, cause] += weights[n, :, i, j].numpy() / length
    return shares


@torch.no_grad()
def eager(model, sequences):
    """Attention weights by layer and the hidden states that enter each attention module, from the untouched model."""
    entering = {}

    def keep(index):
        return lambda module, args, kwargs: entering.update({index: args[0] if args else kwargs["hidden_states"]})

    modules = attention_modules(model)
    hooks = [modules[i].register_forward_pre_hook(keep(i), with_kwargs=True) for i in modules]
    weights = model(input_ids=sequences, use_cache=False, output_attentions=True).attentions
    for hook in hooks:
        hook.remove()
    return weights, entering


@pytest.mark.slow
@pytest.mark.parametrize(("family", "top_k"), list(zip(FAMILIES, itertools.cycle((1, 2)), strict=False)))
def test_the_mass_is_the_sum_of_eager_weights(family, top_k, fresh_seed, near_ties):
    """Tolerance: eager attention takes its softmax in float32, whatever the model's type."""
    own = {"sliding_window": 12} if family in ("Mistral", "Gemma2", "Phi3") else {}
    model = build_model(family, seed=fresh_seed, **own).double()
    sequences = random_ids(30, batch=2, seed=fresh_seed)
    weights, entering = eager(model, sequences)
    for seed in range(fresh_seed, fresh_seed + 20):  # centroids that put distant tokens into different groups
        centroids = build_centroids(model, seed=seed, num_groups=6, top_k=top_k, window=3, num_sinks=2)
        groups = {layer: router.assign(entering[layer]).membership for layer, router in centroids.routers.items()}
        if all(dense_shares(weights[layer], bits, 3, 2)[..., 3].max() > 0.01 for layer, bits in groups.items()):
            break
    focus = compose(model, centroids, sliding_layers="focus")
    mass = attention_mass_kept(focus, sequences)
    focus.detach()
    for row, layer in enumerate(mass.layers):
        expected = dense_shares(weights[layer], groups[layer], 3, 2)
        np.testing.assert_allclose(mass.shares[:, row], expected, atol=1e-5)  # eager softmax is fp32
        assert expected[..., 3].max() > 0.01
    assert mass.kept.shape == mass.distant_kept.shape == (2, 4)


def test_blocks_of_any_size_agree_and_a_sliding_window_is_kept(monkeypatch, fresh_seed):
    generator = torch.Generator().manual_seed(fresh_seed)
    query = torch.randn(2, 6, 37, 8, generator=generator, dtype=torch.float64)
    key = torch.randn(2, 2, 37, 8, generator=generator, dtype=torch.float64)
    membership = 1 << torch.randint(0, 4, (2, 37), generator=generator)
    scores = query @ key.repeat_interleave(3, dim=1).transpose(-1, -2) * 0.5
    scores = 2.0 * torch.tanh(scores / 2.0)
    distance = torch.arange(37)[:, None] - torch.arange(37)
    weights = scores.masked_fill((distance < 0) | (distance >= 20), float("-inf")).softmax(dim=-1)
    expected = dense_shares(weights, membership, 4, 2)
    for scores_at_once in (1, 3000, 1 << 22):
        monkeypatch.setattr(attention_mass, "BLOCK_SCORES", scores_at_once)
        shares = mass_by_cause(query, key, membership, PairRule(4, 2, 20), scale=0.5, softcap=2.0)
        np.testing.assert_allclose(shares.numpy(), expected, atol=1e-12)
        single = mass_by_cause(query.float(), key.float(), membership, PairRule(4, 2, 20), scale=0.5, softcap=2.0)
        np.testing.assert_allclose(single.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("setting", "distant"), [({"top_k": 4, "window": 0, "num_sinks": 0}, 1.0), ({"top_k": 1, "window": 39}, None)]
)
def test_a_mask_of_everything_keeps_everything(setting, distant, tiny_model):
    """A window of all tokens leaves no distant pair, of which nothing is kept or dropped."""
    focus = compose(tiny_model, build_centroids(tiny_model), **setting)
    mass = attention_mass_kept(focus, random_ids(40, batch=2))
    focus.detach()
    assert (mass.kept == 1.0).all()
    assert [row["distant_kept"] for row in mass.rows()] == [distant, distant]
    assert (np.isnan(mass.distant_kept) if distant is None else mass.distant_kept == distant).all()
    np.testing.assert_allclose(mass.shares.sum(axis=-1), 1.0, atol=1e-6)


def test_groups_of_the_focus_run_are_those_it_used(tiny_model, fresh_seed, near_ties):
    """The first layer sees the same hidden states in both runs; the second does not."""
    model = tiny_model.double()
    sequences = random_ids(60, batch=2, seed=fresh_seed)
    focus = compose(model, build_centroids(model, seed=fresh_seed), window=2)
    full = attention_mass_kept(focus, sequences)
    with torch.no_grad():
        model(input_ids=sequences, use_cache=False)
    members = focus.assignments()[1].membership
    used = mass_under_groups(focus, sequences, focus.head_masks()).numpy()
    focus.detach()
    np.testing.assert_allclose(full.shares[:, 0], used[:, 0], atol=1e-12)
    weights, _ = eager(model, sequences)
    np.testing.assert_allclose(used[:, 1], dense_shares(weights[1], members, 2, 1), atol=1e-6)


def test_layers_with_their_own_attention_are_left_out_and_nothing_stays_behind(ids):
    model = build_model("Gemma2", sliding_window=12)
    with torch.no_grad():
        before = model(input_ids=ids, use_cache=False).logits
        focus = compose(model, build_centroids(model))
        composed = model(input_ids=ids, use_cache=False).logits
        mass = attention_mass_kept(focus, ids)
        assert mass.layers == tuple(focus.focused_layers) == (1,)
        assert torch.equal(model(input_ids=ids, use_cache=False).logits, composed)
        focus.detach()
        assert torch.equal(model(input_ids=ids, use_cache=False).logits, before)


def test_sequences_of_another_shape_are_refused(tiny_model, ids):
    focus = compose(tiny_model, build_centroids(tiny_model))
    with pytest.raises(InputError, match=r"sequences has shape \(40,\)"):
        attention_mass_kept(focus, ids[0])


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


def test_lengths_that_differ_are_refused(tiny_model):
    with pytest.raises(InputError, match="expected 3 of each"):
        measure_attention(tiny_model, [5, 6, 7], {0: np.ones(2, dtype=np.int64)}, FocusConfig(num_groups=4))
