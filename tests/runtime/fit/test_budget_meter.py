"""What budgets do, measured, and what settings of heads would do, estimated, against derivatives and compositions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from focus_runtime.budget import HeadSetting, to_budget
from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import Alternatives, Probe
from focus_runtime.fit import budget_meter as module
from focus_runtime.fit.budget_meter import BudgetMeter
from focus_runtime.measure.loss import final_hidden, token_nll, vocabulary_logits
from focus_runtime.measure.perplexity import score
from focus_runtime.routing.router import CentroidRouter
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
def test_products_are_means_over_tokens_whatever_the_sequences_lengths(focus):
    sequences = [random_ids(length, seed=seed) for seed, length in enumerate((40, 24, 64))]
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


@pytest.mark.long
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
    BudgetMeter(focus, {"a": ids}).sensitivities(SETTINGS)
    assert focus.modes == ()
    with torch.no_grad():
        torch.testing.assert_close(focus.model(ids).logits, before, rtol=0, atol=0)
        with focus.entered(Alternatives(tuple(SETTINGS))):
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


OTHERS = (HeadSetting(1, 8), HeadSetting(2, 8), HeadSetting(1, 2), FULL)


def loss(focus, ids):
    return token_nll(focus.model, final_hidden(focus.model, ids), ids).double().mean()


def sensitivities(focus, ids):
    return BudgetMeter(focus, {"a": ids}).sensitivities(OTHERS)


@pytest.fixture
def budgeted(fresh_seed):
    model = build_model(num_hidden_layers=3).double()
    focus = compose(model, build_centroids(model), window=8, budget=[{"layer": 2, "head": 1, "full": True}])
    yield focus
    focus.detach()


def mixed(focus, ids, layer, setting, head, weight):
    """The loss with one weight that is not 0."""
    with torch.no_grad(), focus.entered(Alternatives(tuple(OTHERS))) as alternatives:
        for index in focus.focused_layers:
            alternatives.weights[index] = torch.zeros(len(OTHERS), 2, dtype=torch.float64)
        alternatives.weights[layer][setting, head] = weight
        return loss(focus, ids).item()


@pytest.mark.slow
def test_sensitivities_are_derivatives_of_the_loss(budgeted, fresh_seed, monkeypatch):
    focus = budgeted
    decided, assign = {}, CentroidRouter.assign

    def once(router, hidden, **rest):  # a change of groups is a jump, of which a derivative knows nothing
        return decided.setdefault(id(router), assign(router, hidden, **rest))

    monkeypatch.setattr(CentroidRouter, "assign", once)
    ids = random_ids(48, seed=fresh_seed)
    found = sensitivities(focus, ids)
    assert [(layer, gain.shape) for layer, gain in found.items()] == [(layer, (4, 2)) for layer in range(3)]
    for layer, setting, head in itertools.product(range(3), range(4), range(2)):
        step = 0.01  # logits are fp32: smaller steps are lost in rounding
        change = mixed(focus, ids, layer, setting, head, step) - mixed(focus, ids, layer, setting, head, -step)
        assert found[layer][setting, head] == pytest.approx(-change / (2 * step), rel=5e-3, abs=1e-4)
    assert found[0][0, 0] == found[2][3, 1] == 0  # what the heads execute
    assert np.abs(found[0][1:]).min() > 0


@pytest.mark.parametrize(("layer", "setting", "head"), [(0, 1, 1), (1, 2, 0), (1, 3, 1), (2, 3, 0), (2, 0, 1)])
def test_with_weight_one_a_head_executes_the_other_setting(budgeted, fresh_seed, layer, setting, head):
    focus = budgeted
    ids = random_ids(48, seed=fresh_seed)
    settings = {(2, 1): FULL} | {(layer, head): OTHERS[setting]}
    budget = to_budget(settings, HeadSetting(focus.config.top_k, 8))
    with torch.no_grad(), focus.with_config(focus.config.replace(budget=budget)):
        expected = loss(focus, ids).item()
    assert mixed(focus, ids, layer, setting, head, 1.0) == pytest.approx(expected, rel=1e-12)


BUDGETS = [
    [{"layer": 2, "head": 1, "full": True}],
    [{"layer": 0, "top_k": 3, "window": 1}],
    [{"layer": 1, "full": True}, {"layer": 2, "head": 0, "top_k": 2}],
]


@pytest.fixture
def meter():
    model = build_model(num_hidden_layers=3)
    focus = compose(model, build_centroids(model, budget=[{"layer": 2, "head": 0, "top_k": 2}]))
    yield BudgetMeter(focus, {"a": random_ids(40, batch=2, seed=1), "b": random_ids(40, seed=2)})
    focus.detach()


@pytest.mark.parametrize("budget", BUDGETS)
def test_it_is_the_loss_of_a_composition_with_that_budget(meter, budget):
    measured = meter.measure(budget)
    again = meter.measure(budget)
    np.testing.assert_array_equal(measured.nll, again.nll)
    assert measured.loss == pytest.approx(measured.nll.mean())
    model, sequences = meter.focus.model, meter._ids
    meter.focus.detach()
    focus = compose(model, build_centroids(model), budget=budget)
    for place, ids in enumerate(sequences):
        assert measured.nll[place] == pytest.approx(score(focus, ids).loss, rel=1e-6)
    shares = [score(focus, ids).retained_pairs.mean() for ids in sequences]
    assert measured.retained_pairs == pytest.approx(np.mean(shares))
    focus.detach()
    for place, ids in enumerate(sequences):
        assert meter.full[place] == pytest.approx(score(model, ids).loss, rel=1e-6)


def test_sequences_of_several_lengths_weigh_by_their_tokens_and_pairs_are_those_of_the_first():
    model = build_model(num_hidden_layers=3)
    focus = compose(model, build_centroids(model))
    short, long = random_ids(40, batch=2, seed=1), random_ids(90, seed=2)
    measured = BudgetMeter(focus, {"short": short, "long": long}).measure(BUDGETS[0])
    apart = [BudgetMeter(focus, {"one": ids}).measure(BUDGETS[0]) for ids in (short, long)]
    np.testing.assert_allclose(measured.nll, np.concatenate([one.nll for one in apart]), rtol=1e-6)
    assert measured.loss == pytest.approx((80 * apart[0].loss + 90 * apart[1].loss) / 170, rel=1e-6)
    assert measured.retained_pairs == pytest.approx(apart[0].retained_pairs)
    assert measured.retained_pairs != pytest.approx(apart[1].retained_pairs, rel=1e-3)
    focus.detach()


def test_excess_is_perplexity_over_full_attention_by_domain(meter):
    config = meter.focus.config
    measured = meter.measure(BUDGETS[0])
    difference = measured.nll - meter.full
    expected = {"a": math.exp(difference[:2].mean()) - 1, "b": math.exp(difference[2]) - 1}
    assert meter.excess(measured) == pytest.approx(expected)
    assert meter.focus.config is config  # as it was
    assert meter.measure(config.budget) is meter.base
    everything = meter.measure([{"layer": layer, "full": True} for layer in range(3)])
    np.testing.assert_allclose(everything.nll, meter.full, rtol=1e-5)
    assert everything.retained_pairs == 1.0
