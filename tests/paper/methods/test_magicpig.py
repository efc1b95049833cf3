"""MagicPIG: what is drawn, how likely that was, and that the estimate is unbiased."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.errors import ConfigError
from paper.methods import MagicPIG
from paper.methods.magicpig import draw_probability, hash_codes, magicpig_attention, random_planes
from paper.methods.pairs import Reading
from tests.paper.methods.naive import naive_attention, random_heads


def agreeing_tables(a, b, planes):
    return sum(all(bool(plane @ a > 0) == bool(plane @ b > 0) for plane in table) for table in planes.to(a.dtype))


def clear_planes(tables, bits, vectors, generator):
    """Hyperplanes with no vector so close that rounding to fp32 could put it on the other side."""
    while True:
        planes = random_planes(tables, bits, 8, generator)
        if (torch.einsum("...d,lkd->...lk", vectors, planes.double()).abs() > 1e-5).all():
            return planes


def probability(a, b, tables, bits, least):
    """By the binomial distribution of tables that agree."""
    cosine = float(a @ b / (a.norm() * b.norm()))
    once = (1 - math.acos(max(-1.0, min(1.0, cosine))) / math.pi) ** bits
    return sum(math.comb(tables, m) * once**m * (1 - once) ** (tables - m) for m in range(least, tables + 1))


@pytest.mark.slow
@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("bits", [3, 9])
def test_drawn_keys_carry_minus_the_logarithm_of_their_probability(fresh_seed, monkeypatch, least, softcap, bits):
    monkeypatch.setattr("paper.methods.pairs.BLOCK", 6)
    query, key, value = random_heads(15, batch=1)
    query = query + key.repeat_interleave(2, 1)  # alike enough that nine bits agree now and then
    centre = torch.randn(2, 1, 8) * 0.3
    planes = clear_planes(12, bits, torch.cat([query, key - centre], 1), torch.Generator().manual_seed(fresh_seed))

    def log_weight(b, h, i, j):
        if i - j <= 2 or j < 1:
            return 0.0
        q, k = query[b, h, i], key[b, h // 2, j] - centre[h // 2, 0]
        if agreeing_tables(q, k, planes) < least:
            return None
        return -math.log(probability(q, k, 12, bits, least))

    reading = Reading()
    out = magicpig_attention(
        query,
        key,
        value,
        planes,
        window=2,
        num_sinks=1,
        min_tables=least,
        centre=centre,
        scale=0.5,
        softcap=softcap,
        reading=reading,
    )
    expected, pairs = naive_attention(query, key, value, log_weight, scale=0.5, softcap=softcap)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)  # weights are computed in fp32
    assert float(reading.pairs) == pairs


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("cosine", [-1.0, -0.9, 0.0, 0.7, 0.99, 1.0])
@pytest.mark.parametrize(("tables", "bits"), [(2, 1), (75, 8), (150, 10), (300, 15)])
def test_the_probability_is_the_binomial_tail(least, cosine, tables, bits):
    actual = draw_probability(torch.tensor([cosine]), tables, bits, least).item()
    direction = torch.tensor([cosine, math.sqrt(1 - float(torch.tensor(cosine)) ** 2)], dtype=torch.float64)
    exact = probability(torch.tensor([1.0, 0.0], dtype=torch.float64), direction, tables, bits, least)
    assert actual == pytest.approx(exact, rel=2e-4, abs=1e-300)


def test_hash_collisions_are_as_likely_as_the_probability_says(fresh_seed):
    """Over many draws of the hyperplanes, within six standard errors."""
    a = torch.randn(8)
    b = a + 0.5 * torch.randn(8)
    draws, tables, bits = 4000, 4, 3
    planes = torch.randn(draws * tables, bits, 8, generator=torch.Generator().manual_seed(fresh_seed))
    agree = (hash_codes(a, planes) == hash_codes(b, planes)).reshape(draws, tables).sum(-1) >= 2
    expected = probability(a.double(), b.double(), tables, bits, 2)
    error = math.sqrt(expected * (1 - expected) / draws)
    assert abs(agree.double().mean() - expected) < 6 * error


@pytest.mark.slow
def test_numerator_and_denominator_are_unbiased(fresh_seed):
    """The mean over draws of sum_j 1[drawn] exp(s_j)/u_j v_j is the exact sum, within six standard errors."""
    query, key, value = random_heads(10, query_heads=1, key_heads=1, batch=1)
    generator = torch.Generator().manual_seed(fresh_seed)
    scores = torch.exp(query @ key.transpose(-1, -2) * 8**-0.5)[0, 0].tril()
    exact = torch.cat([scores @ value[0, 0], scores.sum(-1, keepdim=True)], -1)
    draws = []
    eye = torch.eye(10, dtype=torch.float64)[None, None]
    for _ in range(600):
        planes = random_planes(6, 2, 8, generator)
        # Values of one-hot rows give the normalised weights; the window's own weight, known, undoes the normalisation.
        weights = magicpig_attention(
            torch.nn.functional.pad(query, (0, 2)),
            torch.nn.functional.pad(key, (0, 2)),
            eye,
            torch.nn.functional.pad(planes, (0, 2)),
            window=0,
            num_sinks=0,
            scale=8**-0.5,
        )[0, 0]
        weights = weights * (scores.diagonal() / weights.diagonal())[:, None]
        draws.append(torch.cat([weights @ value[0, 0], weights.sum(-1, keepdim=True)], -1))
    outs = torch.stack(draws)
    error = outs.std(0) / math.sqrt(len(draws))
    assert ((outs.mean(0) - exact).abs() <= 6 * error + 1e-6).all()
    assert (error[1:] > 0).any()


def test_the_estimate_converges_with_more_tables(fresh_seed):
    query, key, value = random_heads(20, batch=1)
    expected, _ = naive_attention(query, key, value, lambda *_: 0.0)
    generator = torch.Generator().manual_seed(fresh_seed)
    errors = []
    for tables in (4, 4000):
        out = magicpig_attention(query, key, value, random_planes(tables, 4, 8, generator), window=0, num_sinks=0)
        errors.append((out - expected).abs().mean().item())
    assert errors[1] < 0.02 < errors[0]


def test_a_window_over_the_text_is_full_attention(fresh_seed):
    query, key, value = random_heads(13)
    expected, _ = naive_attention(query, key, value, lambda *_: 0.0)
    out = magicpig_attention(query, key, value, random_planes(3, 4, 8, torch.Generator()), window=12, num_sinks=0)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)


def test_gradients_take_the_sample_as_given(fresh_seed):
    inputs = [x.requires_grad_() for x in random_heads(10, batch=1)]
    planes = random_planes(20, 3, 8, torch.Generator().manual_seed(fresh_seed))
    out = magicpig_attention(*inputs, planes, window=1, num_sinks=1)
    gradients = torch.autograd.grad(out.square().sum(), inputs)
    assert all(torch.isfinite(x).all() and x.abs().max() > 0 for x in gradients)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"bits": 16}, "bits"),
        ({"tables": 0}, "tables"),
        ({"min_tables": 3}, "min_tables"),
        ({"tables": 1}, "min_tables"),
        ({"tables": 2**15}, "tables"),
        ({"full_layers": (0, 0)}, "full_layers"),
    ],
)
def test_bad_settings_are_named(settings, name):
    with pytest.raises(ConfigError, match=name):
        MagicPIG(**settings)
