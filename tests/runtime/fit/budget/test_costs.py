"""Estimated costs are squares of what settings change in the loss of drawn tokens, and near the divergence itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from focus_runtime.budget import HeadSetting
from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import Alternatives, Probe
from focus_runtime.fit import budget_meter as module
from focus_runtime.fit.budget_meter import BudgetMeter
from focus_runtime.measure.loss import final_hidden, token_nll, vocabulary_logits
from tests.helpers import build_centroids, build_model, random_ids

FULL = HeadSetting(0, 0, full=True)
SETTINGS = (FULL, HeadSetting(1, 8), HeadSetting(2, 2), HeadSetting(0, 3))
LAYERS, HEADS, KEY_HEADS = 3, 4, 2


@pytest.fixture(params=["Llama", "Gemma2"])
def focus(request, fresh_seed):
    model = build_model(request.param, num_hidden_layers=LAYERS, seed=fresh_seed % 1000).double()
    focus = compose(model, build_centroids(model, window=8), sliding_layers="focus")
    yield focus
    focus.detach()


def costs(focus, sequences, *rest, **more):
    """Estimates from a list of sequences; only the first is measured."""
    meter = BudgetMeter(focus, {"first": sequences[0]})
    meter._ids, meter._lengths = list(sequences), [ids.shape[1] for ids in sequences]
    return meter.costs(*rest, **more)


@torch.no_grad()
def divergence(focus, ids, budget):
    """KL(full attention || Focus) of every token, (T,), and the share of pairs kept."""
    with focus.full_attention():
        full = vocabulary_logits(focus.model, final_hidden(focus.model, ids))[0].double().log_softmax(-1)
    with focus.with_config(focus.config.replace(budget=budget)):
        other = vocabulary_logits(focus.model, final_hidden(focus.model, ids))[0].double().log_softmax(-1)
    return (full.exp() * (full - other)).sum(-1)


def test_changes_are_derivatives_of_the_loss_of_drawn_tokens(focus, fresh_seed):
    """The sum over tokens is what mixing a setting into a key head does to the loss, found by another way."""
    ids = random_ids(40, seed=fresh_seed % 997)
    changes = module._changes(focus, ids, SETTINGS, seed=5)
    assert changes.shape == (LAYERS, len(SETTINGS), HEADS, 40)
    with torch.no_grad(), focus.full_attention():
        drawn = module._drawn(focus, final_hidden(focus.model, ids), ids, seed=5)
    assert drawn[0, 0] == ids[0, 0]
    assert not torch.equal(drawn, ids)
    full = focus.config.replace(budget=[{"layer": layer, "full": True} for layer in range(LAYERS)])
    with focus.with_config(full), focus.entered(Alternatives(tuple(SETTINGS))) as alternatives:
        loss = token_nll(focus.model, final_hidden(focus.model, ids), drawn).sum()
        slopes = torch.autograd.grad(loss, [alternatives.weights[layer] for layer in range(LAYERS)])
    by_key_head = changes.sum(dim=-1).unflatten(2, (KEY_HEADS, -1)).sum(dim=-1)
    torch.testing.assert_close(by_key_head, torch.stack(slopes).to(by_key_head), rtol=2e-3, atol=2e-4)
    assert (by_key_head[:, 1:].abs().amax(dim=(0, 2)) > 1e-3).all()


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(40, 40, 40), (40, 24, 64)])
def test_products_are_means_over_tokens_whatever_the_sequences_lengths(focus, lengths):
    sequences = [random_ids(length, seed=seed) for seed, length in enumerate(lengths)]
    found = costs(focus, sequences, SETTINGS)
    rows = [module._changes(focus, ids, SETTINGS, seed=place) for place, ids in enumerate(sequences)]
    size = (LAYERS, HEADS, len(SETTINGS))
    assert found.products.shape == (*size, *size)
    for one, other in [((0, 1, 1), (2, 3, 2)), ((1, 0, 3), (1, 0, 3)), ((2, 2, 2), (1, 3, 1))]:
        own = [row[one[0], one[2], one[1]] * row[other[0], other[2], other[1]] for row in rows]
        assert found.products[one + other] == pytest.approx(torch.cat(own).double().mean().item(), rel=1e-4)
    assert np.abs(found.products[:, :, 0]).max() == 0  # full attention changes nothing
    np.testing.assert_allclose(found.products, found.products.transpose(3, 4, 5, 0, 1, 2), rtol=1e-4, atol=1e-12)


def test_key_heads_are_their_query_heads_together(focus):
    ids = [random_ids(40, seed=1)]
    apart, together = (costs(focus, ids, SETTINGS, by_query=by_query) for by_query in (True, False))
    assert (apart.by_query, together.by_query) == (True, False)
    shape = (LAYERS, KEY_HEADS, HEADS // KEY_HEADS, len(SETTINGS))
    summed = apart.products.reshape(*shape, *shape).sum(axis=(2, 6))
    np.testing.assert_allclose(together.products, summed, rtol=1e-3, atol=1e-10)
    np.testing.assert_array_equal(together.pairs, apart.pairs)


@pytest.mark.slow
def test_half_the_sum_of_products_is_the_divergence_of_a_small_change(fresh_seed, monkeypatch):
    """In the last layer a token's change reaches no other token, and so nothing is left out but higher orders."""
    model = build_model(num_hidden_layers=2, seed=fresh_seed % 1000).double()
    focus = compose(model, build_centroids(model, window=8))
    ids = random_ids(40, seed=fresh_seed % 997)
    setting = HeadSetting(1, 33)
    draws = iter(range(10_000))
    drawn = module._drawn
    monkeypatch.setattr(module, "_drawn", lambda *rest, **_: drawn(*rest[:3], seed=next(draws)))
    found = costs(focus, [ids] * 300, (FULL, setting))
    heads = [(1, 0), (1, 3)]
    estimated = sum(found.products[(*one, 1, *other, 1)] for one, other in itertools.product(heads, heads)) / 2
    others = [{"layer": layer, "full": True} for layer in range(2)]
    budget = others + [{"layer": 1, "query_head": head, "top_k": 1, "window": 33} for _, head in heads]
    exact = divergence(focus, ids, budget)[:-1].sum().item() / 40  # the last token's prediction is drawn by nobody
    assert exact > 0
    assert estimated == pytest.approx(exact, rel=0.25)
    focus.detach()


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(40, 40, 40), (40, 64, 40)])
def test_it_goes_on_where_it_stopped(focus, lengths):
    sequences = [random_ids(length, seed=seed) for seed, length in enumerate(lengths)]
    kept = []
    whole = costs(focus, sequences, SETTINGS, kept.append)
    assert [one.sequences for one in kept] == [1, 2, 3]
    again = costs(focus, sequences, SETTINGS, start=kept[0])
    np.testing.assert_allclose(again.products, whole.products, rtol=1e-6)
    np.testing.assert_allclose(again.pairs, whole.pairs)
    assert again.sequences == 3


def test_ctrl_c_within_a_sequence_leaves_the_estimates_before_it(focus, monkeypatch):
    sequences = [random_ids(40, seed=seed) for seed in range(3)]
    whole, kept, shares, calls = costs(focus, sequences, SETTINGS), [], module.setting_shares, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return shares(*args)

    monkeypatch.setattr(module, "setting_shares", interrupted)
    with pytest.raises(KeyboardInterrupt):
        costs(focus, sequences, SETTINGS, kept.append)
    again = costs(focus, sequences, SETTINGS, start=kept[-1])
    np.testing.assert_allclose(again.products, whole.products, rtol=1e-6)
    np.testing.assert_allclose(again.pairs, whole.pairs)


def test_a_measurement_changes_nothing(focus):
    ids = random_ids(32, seed=3)
    with torch.no_grad():
        before = focus.model(ids).logits
    costs(focus, [ids], SETTINGS)
    assert focus.modes == ()
    with torch.no_grad():
        torch.testing.assert_close(focus.model(ids).logits, before, rtol=0, atol=0)
        with focus.full_attention():
            full = focus.model(ids).logits
        with focus.entered(Probe(tuple(SETTINGS))):
            torch.testing.assert_close(focus.model(ids).logits, full, rtol=1e-5, atol=1e-5)
    assert all(parameter.grad is None for parameter in focus.model.parameters())


@pytest.mark.parametrize("longer", [40, 60])
def test_pairs_are_those_of_the_setting_at_the_first_length(longer):
    model = build_model(num_hidden_layers=2)
    focus = compose(model, build_centroids(model), window=8)
    meter = BudgetMeter(focus, {"a": random_ids(40, batch=2, seed=1), "b": random_ids(longer, seed=2)})
    found = meter.costs(SETTINGS, lambda costs: None)
    assert found.pairs[:, 0] == pytest.approx(1.0)
    sinks = focus.config.num_sinks
    near = sum(min(row, 3) + 1 + max(0, min(sinks, row - 3)) for row in range(40))
    assert found.pairs[0, 3] == pytest.approx(near / (40 * 41 / 2))  # window 3 and the first tokens, no groups
    focus.detach()
