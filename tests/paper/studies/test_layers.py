"""One layer alone, greedy choice and the curve over layers, against scores of restricted centroids."""

from __future__ import annotations

import json

import pytest

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError
from focus_runtime.measure.perplexity import score
from paper.studies.layers import greedy_layers, layer_curve, layers_alone, restrict
from paper.studies.rows import focus_row, variant
from tests.helpers import build_centroids, build_model

pytestmark = [
    pytest.mark.slow,  # many short trainings or compositions; they run in make test
    pytest.mark.usefixtures("centroids_unchanged"),
]


def test_one_layer_alone_is_the_centroids_restricted_to_it(model, centroids, sequences):
    rows = layers_alone(model, centroids, sequences, top_k=1)
    assert sorted(row["layers"][0] for row in rows[1:]) == [0, 1, 2]
    prices = [row["loss_per_dropped_pair"] for row in rows[1:]]
    assert prices == sorted(prices)
    full = score(model, sequences)
    for row in rows[1:]:
        focus = compose(model, variant(restrict(centroids, row["layers"])), top_k=1)
        scores = score(focus, sequences)
        focus.detach()
        assert row["perplexity"] == pytest.approx(scores.perplexity)
        dropped = 1 - scores.retained_pairs[0]
        assert row["retained_pairs_of_model"] == pytest.approx(1 - dropped / 3)
        assert row["loss_per_dropped_pair"] == pytest.approx((scores.nll - full.nll).mean() / dropped)
    json.dumps(rows)


def test_greedy_choice_takes_the_cheapest_next_layer(model, centroids, sequences):
    rows = greedy_layers(model, centroids, sequences, top_k=1)[1:]
    alone = layers_alone(model, centroids, sequences, top_k=1)[1:]
    assert rows[0]["layers"] == alone[0]["layers"]
    assert [len(row["layers"]) for row in rows] == [1, 2, 3]
    assert sorted(rows[-1]["layers"]) == [0, 1, 2]
    full = score(model, sequences)
    prices = {}
    for layer in {0, 1, 2} - set(rows[0]["layers"]):
        both = restrict(centroids, [*rows[0]["layers"], layer])
        row = focus_row(model, both, sequences, full, "given", top_k=1)
        lost = row["difference_nats"] - rows[0]["difference_nats"]
        prices[layer] = lost / (2 * (1 - row["retained_pairs"]) - (1 - rows[0]["retained_pairs"]))
    assert rows[1]["added"] == min(prices, key=prices.get)
    assert rows[1]["added_loss_per_dropped_pair"] == pytest.approx(min(prices.values()))
    every = focus_row(model, centroids, sequences, full, "given", top_k=1)
    assert rows[-1]["perplexity"] == pytest.approx(every["perplexity"])
    assert len(greedy_layers(model, centroids, sequences, top_k=1, steps=2, candidates=1)) == 3


def test_the_curve_meets_itself_when_every_layer_is_focused(model, centroids, sequences):
    rows = layer_curve(model, centroids, sequences, [2, 0, 1], counts=(1, 3), seeds=(0,), top_k=1)[1:]
    assert [(row["order"], row["count"]) for row in rows] == [
        (order, count) for order in ("best first", "worst first", "random 0") for count in (1, 3)
    ]
    assert rows[0]["layers"] == [2]
    assert rows[2]["layers"] == [1]
    assert len({row["perplexity"] for row in rows if row["count"] == 3}) == 1
    with pytest.raises(InputError, match="counts has 4; expected numbers between 1 and 3"):
        layer_curve(model, centroids, sequences, [2, 0, 1], counts=(4,))


def test_layers_that_keep_their_own_window_are_not_ranked(sequences):
    model = build_model("Gemma2", sliding_window=8)
    rows = layers_alone(model, build_centroids(model), sequences)
    assert [row["layers"] for row in rows[1:]] == [[1]]


def test_restricting_to_a_layer_without_a_router_is_refused(centroids):
    with pytest.raises(InputError, match="layer 7 has no router in these centroids; expected some of 0, 1, 2"):
        restrict(centroids, [0, 7])
    with pytest.raises(InputError, match="no layer was chosen"):
        restrict(centroids, [])
