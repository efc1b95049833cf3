"""SparQ against algorithm 1 of its paper, one query at a time."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.errors import ConfigError
from paper.methods import SparQ
from paper.methods.pairs import Reading
from paper.methods.sparq import sparq_attention
from tests.paper.methods.naive import naive_attention, random_heads, score


def naive_sparq(query, key, value, *, components, num_keys, num_local, reallocate, scale, softcap=None):
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


@pytest.mark.slow
@pytest.mark.parametrize("heads", [(4, 2), (2, 2), (3, 1)])
@pytest.mark.parametrize(("components", "num_keys", "num_local"), [(3, 5, 2), (1, 1, 0), (8, 4, 4), (2, 30, 3)])
@pytest.mark.parametrize("reallocate", [True, False])
def test_it_is_algorithm_1(fresh_seed, monkeypatch, heads, components, num_keys, num_local, reallocate):
    monkeypatch.setattr("paper.methods.pairs.BLOCK", 6)
    query, key, value = random_heads(17, query_heads=heads[0], key_heads=heads[1], batch=1)
    settings = {"components": components, "num_keys": num_keys, "num_local": num_local, "reallocate": reallocate}
    reading = Reading()
    out = sparq_attention(query, key, value, **settings, scale=0.5, reading=reading)
    expected, pairs = naive_sparq(query, key, value, **settings, scale=0.5)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    assert float(reading.pairs) == pairs


def test_capped_scores(fresh_seed):
    query, key, value = random_heads(13, batch=1)
    settings = {"components": 3, "num_keys": 4, "num_local": 1, "reallocate": True, "scale": 1.0, "softcap": 1.2}
    expected, _ = naive_sparq(query, key, value, **settings)
    torch.testing.assert_close(sparq_attention(query, key, value, **settings), expected, rtol=1e-9, atol=1e-9)


def test_everything_read_is_full_attention(fresh_seed):
    query, key, value = random_heads(13)
    expected, _ = naive_attention(query, key, value, lambda *_: 0.0)
    out = sparq_attention(query, key, value, components=2, num_keys=13)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)


def test_a_query_of_zeros_stays_finite():
    query, key, value = random_heads(9, dtype=torch.float32)
    out = sparq_attention(torch.zeros_like(query).requires_grad_(), key, value, components=2, num_keys=3)
    assert torch.isfinite(out).all()


def test_gradients_flow_through_scores_and_reallocation(fresh_seed):
    inputs = [x.requires_grad_() for x in random_heads(10, batch=1)]

    def run(*tensors):
        return sparq_attention(*tensors, components=3, num_keys=4, num_local=1)

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"components": 0}, "components"),
        ({"num_keys": 8, "num_local": 9}, "num_local is 9"),
        ({"reallocate": "yes"}, "reallocate"),
        ({"num_keys": 2**40}, "num_keys"),
    ],
)
def test_bad_settings_are_named(settings, name):
    with pytest.raises(ConfigError, match=name):
        SparQ(**settings)
