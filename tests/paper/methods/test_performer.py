"""Performer: the sums are the quadratic form of its features, and the features estimate softmax attention."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.errors import ConfigError
from paper.methods import Performer
from paper.methods.pairs import Reading
from paper.methods.performer import performer_attention, random_features
from tests.paper.methods.naive import every_query, naive_attention, random_heads


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


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 2, 13, 16, 33])
@pytest.mark.parametrize("count", [5, 40])
def test_prefix_sums_are_the_quadratic_form_of_the_features(fresh_seed, length, count):
    query, key, value = random_heads(length)
    features = torch.randn(count, 8, dtype=torch.float64)
    reading = Reading()
    out = performer_attention(query, key, value, features, scale=0.4, reading=reading)
    torch.testing.assert_close(out, naive_performer(query, key, value, features, 0.4), rtol=1e-9, atol=1e-9)
    assert reading.retained_pairs == 1.0
    assert reading.keys_per_query == (length + 1) / 2


@pytest.mark.parametrize("orthogonal", [True, False])
def test_the_estimate_converges_to_softmax_attention(fresh_seed, orthogonal):
    query, key, value = random_heads(12, batch=1)
    query, key = query / 2, key / 2  # the variance grows with exp(|q + k|^2)
    expected, _ = naive_attention(query, key, value, lambda *_: 0.0)
    generator = torch.Generator().manual_seed(fresh_seed)
    errors = []
    for count in (16, 16384):
        features = random_features(count, 8, generator, orthogonal=orthogonal).double()
        errors.append((performer_attention(query, key, value, features) - expected).abs().mean().item())
    assert errors[1] < 0.02
    assert errors[1] < errors[0] / 4  # 32 is what 1/sqrt(m) gives


def test_the_kernel_is_estimated_without_bias(fresh_seed):
    """E of the product of two feature maps is exp(q.k); within six standard errors."""
    query, key = torch.randn(8).double() * 0.5, torch.randn(8).double() * 0.5
    generator = torch.Generator().manual_seed(fresh_seed)
    draws = []
    for _ in range(400):
        features = random_features(16, 8, generator).double()
        draws.append(feature_map(query, features) @ feature_map(key, features))
    estimates = torch.stack(draws)
    error = estimates.std() / math.sqrt(len(draws))
    assert abs(estimates.mean() - torch.exp(query @ key)) < 6 * error


def test_orthogonal_features_are_orthogonal_and_of_normal_length(fresh_seed):
    features = random_features(20, 8, torch.Generator().manual_seed(fresh_seed)).double()
    for block in features.split(8):
        product = block @ block.T
        torch.testing.assert_close(
            product - torch.diag(product.diagonal()), torch.zeros_like(product), atol=1e-4, rtol=0
        )
    lengths = random_features(4000, 8, torch.Generator().manual_seed(fresh_seed)).square().sum(-1)
    assert abs(lengths.mean() - 8) < 6 * lengths.std() / math.sqrt(4000)


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_large_and_unequal_norms_stay_finite(fresh_seed, direction):
    """Features differ by hundreds of orders of magnitude between tokens, later ones larger or smaller."""
    query, key, value = random_heads(64, batch=1, dtype=torch.float32)
    growing = torch.linspace(-3, 3, 64)[:, None] * direction
    query, key = query * 10, key * 10 ** (growing / 2)
    features = random_features(32, 8, torch.Generator().manual_seed(fresh_seed))
    out = performer_attention(query, key, value, features, scale=1.0)
    assert torch.isfinite(out).all()
    seen = value.repeat_interleave(2, 1).cummax(2).values
    assert (out <= seen + 1e-4).all()  # a weighted mean of values seen so far
    torch.testing.assert_close(out[:, :, 0], value.repeat_interleave(2, 1)[:, :, 0])


def test_gradients_flow_and_are_those_of_the_quadratic_form(fresh_seed):
    inputs = [x.requires_grad_() for x in random_heads(11, batch=1)]
    features = torch.randn(6, 8, dtype=torch.float64)
    out = performer_attention(*inputs, features, scale=0.3)
    weights = torch.randn_like(out)
    gradients = torch.autograd.grad((out * weights).sum(), inputs)
    query, key, value = inputs
    root = math.sqrt(0.3)
    maps = [torch.exp(x * root @ features.T - (x * root).square().sum(-1, keepdim=True) / 2) for x in (query, key)]
    kernel = (maps[0] @ maps[1].repeat_interleave(2, 1).transpose(-1, -2)).tril()
    dense = kernel @ value.repeat_interleave(2, 1) / kernel.sum(-1, keepdim=True)
    for one, other in zip(gradients, torch.autograd.grad((dense * weights).sum(), inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


def test_bad_settings_are_named():
    with pytest.raises(ConfigError, match="num_features is 0"):
        Performer(num_features=0)
    with pytest.raises(ConfigError, match="orthogonal is 1"):
        Performer(orthogonal=1)
