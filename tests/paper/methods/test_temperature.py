"""Learned factors of logits against the definition, pair by pair."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.attention.reference import Scoring
from focus_runtime.errors import ConfigError
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.loss import final_hidden, token_nll
from paper.methods import Temperature
from paper.methods.pairs import Reading
from paper.methods.temperature import tempered_attention
from tests.helpers import build_model
from tests.paper.methods.naive import random_heads
from tests.runtime.attention.gated_reference import gated_attention_reference


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("paper.methods.pairs.BLOCK", 7)


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize(("pairs", "drop_far"), [("all", False), ("far", False), ("all", True)])
@pytest.mark.parametrize(("window", "num_sinks"), [(0, 0), (4, 0), (4, 3), (60, 2)])
def test_values_and_gradients_are_those_of_the_definition(fresh_seed, pairs, drop_far, window, num_sinks, softcap):
    inputs = [x.requires_grad_() for x in random_heads(23)]
    factors = (0.2 + 2 * torch.rand(4, dtype=torch.float64)).requires_grad_()
    reading = Reading()
    setting = {"pairs": pairs, "window": window, "num_sinks": num_sinks, "drop_far": drop_far}
    out = tempered_attention(*inputs, factors, **setting, scale=0.4, softcap=softcap, reading=reading)
    weights = torch.randn_like(out)
    gradients = torch.autograd.grad((out * weights).sum(), [*inputs, factors])

    i, j = torch.arange(23)[:, None], torch.arange(23)[None]
    far = (i - j > window) & (j >= num_sinks)
    query, key, value = inputs
    scores = query @ key.repeat_interleave(2, 1).transpose(-1, -2) * 0.4
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    multiplied = scores * factors[:, None, None]
    scores = multiplied if pairs == "all" else torch.where(far, multiplied, scores)
    hidden = (j > i) | (far & drop_far)
    dense = torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ value.repeat_interleave(2, 1)
    torch.testing.assert_close(out, dense, rtol=1e-9, atol=1e-9)
    expected = torch.autograd.grad((dense * weights).sum(), [*inputs, factors])
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)
    assert reading.retained_pairs == pytest.approx(float((~hidden).sum()) / (23 * 24 / 2))


def test_it_is_equation_2_of_tokens_that_are_all_equally_close(fresh_seed):
    query, key, value = random_heads(19)
    same = torch.full((2, 19, 4), 0.25, dtype=torch.float64)  # affinity 4 / 16
    gated = gated_attention_reference(
        query, key, value, same, PairRule(3, 1), Scoring(0.4), gate="paper", steepness=3.0
    )
    factors = torch.sigmoid(torch.tensor(3.0 * 0.25, dtype=torch.float64)).expand(4)
    tempered = tempered_attention(query, key, value, factors, pairs="far", window=3, num_sinks=1, scale=0.4)
    torch.testing.assert_close(tempered, gated, rtol=1e-9, atol=1e-9)


def test_a_model_is_unchanged_until_its_factors_are_trained():
    model = build_model()
    ids = torch.randint(0, 32, (2, 40))
    before = final_hidden(model, ids)
    with Temperature(pairs="far", window=4).attach(model, text=ids) as handle:
        torch.testing.assert_close(final_hidden(handle.model, ids), before)
        parameters = handle.parameters()
        assert [p.shape for p in parameters] == [(4,)] * len(handle.layers())
        token_nll(model, final_hidden(model, ids), ids).mean().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in parameters)
        assert handle.retained_pairs() == 1.0
    with Temperature(window=4, drop_far=True).attach(model, text=ids) as handle:
        assert not torch.allclose(final_hidden(handle.model, ids), before)
        assert handle.retained_pairs() < 0.5


@pytest.mark.parametrize(
    "settings",
    [{"pairs": "some"}, {"pairs": "far"}, {"drop_far": True}, {"window": 3, "pairs": "far", "drop_far": True}],
)
def test_bad_settings_are_named(settings):
    with pytest.raises(ConfigError, match="expected"):
        Temperature(**settings)
