"""Longformer against its mask, pair by pair."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.errors import ConfigError
from paper.methods import Longformer
from paper.methods.longformer import longformer_attention
from paper.methods.pairs import Reading
from tests.paper.methods.naive import naive_attention, random_heads


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("paper.methods.pairs.BLOCK", 7)


@pytest.mark.slow
@pytest.mark.parametrize("positions", [(), (0, 1), (3, 11, 20), (0, 1000)])
@pytest.mark.parametrize("window", [0, 2, 9, 50])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_longformer_reads_near_pairs_and_pairs_with_a_global_token(fresh_seed, positions, window, softcap):
    query, key, value = random_heads(23)
    reading = Reading()
    out = longformer_attention(
        query, key, value, window=window, positions=positions, scale=0.4, softcap=softcap, reading=reading
    )

    def allowed(b, h, i, j):
        return 0.0 if i - j <= window or i in positions or j in positions else None

    expected, pairs = naive_attention(query, key, value, allowed, scale=0.4, softcap=softcap)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    assert float(reading.pairs) == pairs
    assert reading.queries == 2 * 4 * 23
    assert reading.causal == 2 * 4 * 23 * 24 / 2
    assert reading.retained_pairs == pytest.approx(pairs / (8 * 276))
    assert reading.keys_per_query == pytest.approx(pairs / (8 * 23))


def test_gradients_are_those_of_the_masked_softmax(fresh_seed):
    inputs = [x.requires_grad_() for x in random_heads(19, batch=1)]
    out = longformer_attention(*inputs, window=3, positions=(0, 5))
    weights = torch.randn_like(out)
    gradients = torch.autograd.grad((out * weights).sum(), inputs)
    i, j = torch.arange(19)[:, None], torch.arange(19)[None]
    special = torch.zeros(19, dtype=torch.bool)
    special[[0, 5]] = True
    allowed = (j <= i) & ((i - j <= 3) | special[None] | special[:, None])
    query, key, value = inputs
    scores = query @ key.repeat_interleave(2, 1).transpose(-1, -2) * 8**-0.5
    dense = torch.softmax(scores.masked_fill(~allowed, -torch.inf), -1) @ value.repeat_interleave(2, 1)
    for one, other in zip(gradients, torch.autograd.grad((dense * weights).sum(), inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Longformer(window=-1), "window"),
        (lambda: Longformer(num_globals=1.5), "num_globals"),
        (lambda: Longformer(positions=(1, 1)), "positions"),
        (lambda: Longformer(positions=[1]), "positions"),
    ],
)
def test_bad_settings_are_named(make, name):
    with pytest.raises(ConfigError, match=name):
        make()
