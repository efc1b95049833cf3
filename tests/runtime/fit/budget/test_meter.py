"""A budget measured from the layer it changes gives what composing it anew gives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from focus_runtime.composition.attach import compose
from focus_runtime.fit.budget_meter import BudgetMeter
from focus_runtime.measure.loss import evaluate_focus, evaluate_full
from tests.helpers import build_centroids, build_model, random_ids

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
        quality = evaluate_focus(focus, ids)
        assert math.exp(measured.nll[place]) == pytest.approx(quality.perplexity, rel=1e-6)
    shares = [evaluate_focus(focus, ids).retained_pairs for ids in sequences]
    assert measured.retained_pairs == pytest.approx(np.mean(shares))
    focus.detach()
    for place, ids in enumerate(sequences):
        assert math.exp(meter.full[place]) == pytest.approx(evaluate_full(model, ids)[0], rel=1e-6)


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


def test_the_composition_is_left_as_it_was(meter):
    config = meter.focus.config
    meter.measure(BUDGETS[0])
    assert meter.focus.config is config
    assert meter.measure(config.budget) is meter.base


def test_excess_is_perplexity_over_full_attention_by_domain(meter):
    measured = meter.measure(BUDGETS[0])
    difference = measured.nll - meter.full
    assert meter.excess(measured) == pytest.approx(
        {"a": math.exp(difference[:2].mean()) - 1, "b": math.exp(difference[2]) - 1}
    )


def test_full_attention_everywhere_loses_nothing(meter):
    measured = meter.measure([{"layer": layer, "full": True} for layer in range(3)])
    np.testing.assert_allclose(measured.nll, meter.full, rtol=1e-5)
    assert measured.retained_pairs == 1.0
