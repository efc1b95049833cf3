"""Estimates are derivatives of the loss."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from focus_runtime.budget import HeadSetting, to_budget
from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import Alternatives
from focus_runtime.fit.budget_meter import BudgetMeter
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.routing.router import CentroidRouter
from tests.helpers import build_centroids, build_model, random_ids

FULL = HeadSetting(0, 0, full=True)
SETTINGS = (HeadSetting(1, 8), HeadSetting(2, 8), HeadSetting(1, 2), FULL)


def loss(focus, ids):
    return token_nll(focus.model, final_hidden(focus.model, ids), ids).double().mean()


def sensitivities(focus, ids):
    return BudgetMeter(focus, {"a": ids}).sensitivities(focus.config.budget, SETTINGS)


@pytest.fixture
def focus(fresh_seed):
    model = build_model(num_hidden_layers=3).double()
    focus = compose(model, build_centroids(model), window=8, budget=[{"layer": 2, "head": 1, "full": True}])
    yield focus
    focus.detach()


def mixed(focus, ids, layer, setting, head, weight):
    """The loss with one weight that is not 0."""
    with torch.no_grad(), focus.entered(Alternatives(tuple(SETTINGS))) as alternatives:
        for index in focus.focused_layers:
            alternatives.weights[index] = torch.zeros(len(SETTINGS), 2, dtype=torch.float64)
        alternatives.weights[layer][setting, head] = weight
        return loss(focus, ids).item()


@pytest.mark.slow
def test_estimates_are_derivatives_of_the_loss(focus, fresh_seed, monkeypatch):
    decided, assign = {}, CentroidRouter.assign

    def once(router, hidden, **rest):  # a change of groups is a jump, of which a derivative knows nothing
        return decided.setdefault(id(router), assign(router, hidden, **rest))

    monkeypatch.setattr(CentroidRouter, "assign", once)
    ids = random_ids(48, seed=fresh_seed)
    found = sensitivities(focus, ids)
    assert found.layers == (0, 1, 2)
    assert found.gain.shape == (3, 4, 2)
    for layer, setting, head in itertools.product(range(3), range(4), range(2)):
        step = 0.01  # logits are fp32: smaller steps are lost in rounding
        change = mixed(focus, ids, layer, setting, head, step) - mixed(focus, ids, layer, setting, head, -step)
        assert found.gain[layer, setting, head] == pytest.approx(-change / (2 * step), rel=5e-3, abs=1e-4)
    assert found.gain[0, 0, 0] == found.gain[2, 3, 1] == 0  # what the heads execute
    assert np.abs(found.gain[0, 1:]).min() > 0


@pytest.mark.parametrize(("layer", "setting", "head"), [(0, 1, 1), (1, 2, 0), (1, 3, 1), (2, 3, 0), (2, 0, 1)])
def test_with_weight_one_a_head_executes_the_other_setting(focus, fresh_seed, layer, setting, head):
    ids = random_ids(48, seed=fresh_seed)
    settings = {(2, 1): FULL} | {(layer, head): SETTINGS[setting]}
    budget = to_budget(settings, HeadSetting(focus.config.top_k, 8))
    with torch.no_grad(), focus.with_config(focus.config.replace(budget=budget)):
        expected = loss(focus, ids).item()
    assert mixed(focus, ids, layer, setting, head, 1.0) == pytest.approx(expected, rel=1e-12)


def test_a_measurement_changes_nothing(focus):
    ids = random_ids(32, seed=3)
    with torch.no_grad():
        before = focus.model(ids).logits
    sensitivities(focus, ids)
    assert focus.modes == ()
    with torch.no_grad():
        torch.testing.assert_close(focus.model(ids).logits, before, rtol=0, atol=0)
        with focus.entered(Alternatives(tuple(SETTINGS))):
            torch.testing.assert_close(focus.model(ids).logits, before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in focus.model.parameters())


def test_pairs_are_those_of_the_setting_and_sequences_are_averaged():
    model = build_model(num_hidden_layers=2)
    focus = compose(model, build_centroids(model), window=8)
    sequences = {"a": random_ids(40, batch=2, seed=1), "b": random_ids(40, seed=2)}
    meter = BudgetMeter(focus, sequences)
    found = meter.sensitivities((), SETTINGS)
    parts = [sensitivities(focus, ids) for ids in (*sequences["a"].split(1), sequences["b"])]
    np.testing.assert_allclose(found.gain, np.mean([part.gain for part in parts], axis=0), rtol=1e-6)
    for place, setting in enumerate(SETTINGS):
        heads = {(1, head): setting for head in range(2)}  # the last layer: nothing after it reads on
        measured = meter.measure(to_budget(heads, meter.usual)).retained_pairs
        other = meter.base.retained_pairs - found.pairs[1, 0] / 2
        assert found.pairs[1, place] / 2 + other == pytest.approx(measured)
    focus.detach()
