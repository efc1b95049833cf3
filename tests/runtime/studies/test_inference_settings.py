"""Analyses on tiny models: every row against what composing and scoring by hand gives."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from focus_runtime.baselines.no_groups import calibrated_chance, no_groups
from focus_runtime.composition.attach import compose
from focus_runtime.errors import ConfigError, InputError
from focus_runtime.measure.loss import evaluate_focus, evaluate_full, final_hidden, token_nll
from focus_runtime.measure.scores import score
from focus_runtime.studies.balance import group_balance
from focus_runtime.studies.inference_settings import sweep_assignment, sweep_masks
from focus_runtime.studies.layers import greedy_layers, layer_curve, layers_alone, restrict
from focus_runtime.studies.leak import assignment_leak, future_effect
from focus_runtime.studies.rows import focus_row, full_row, gap_recovered, variant
from tests.helpers import build_centroids, build_model, random_ids

pytestmark = pytest.mark.slow  # many short trainings or compositions; they run in make test

KEYS = {
    "setting",
    "perplexity",
    "difference_nats",
    "differences",
    "scored_tokens",
    "dominance_mean",
    "dominance_max",
    "retained_pairs",
    "distant_kept",
}


@pytest.fixture(scope="module")
def model():
    return build_model(num_hidden_layers=3)


@pytest.fixture(scope="module")
def sequences():
    return random_ids(40, batch=3, seed=5)


@pytest.fixture
def centroids(model):
    return build_centroids(model, num_groups=3, window=4, num_sinks=1)


def state(centroids):
    return {
        index: [router.config, *(value.clone() for value in router.state_dict().values())]
        for index, router in centroids.routers.items()
    }


@pytest.fixture(autouse=True)
def _centroids_are_left_as_they_are(centroids, model):
    """No analysis may change the centroids it was given, or leave Focus on the model."""
    before = state(centroids)
    yield
    after = state(centroids)
    assert before.keys() == after.keys()
    for index, (config, *tensors) in before.items():
        assert after[index][0] == config
        assert all(torch.equal(x, y) for x, y in zip(tensors, after[index][1:], strict=True))
    compose(model, centroids).detach()


def test_a_row_is_what_composing_by_hand_gives(model, centroids, sequences):
    full = score(model, sequences)
    row = focus_row(model, centroids, sequences, full, "given", top_k=2, window=7)
    focus = compose(model, variant(centroids), top_k=2, window=7)
    quality = evaluate_focus(focus, sequences)
    by_layer = score(focus, sequences).dominance
    focus.detach()
    assert row.keys() == KEYS
    assert row["perplexity"] == pytest.approx(quality.perplexity)
    assert row["difference_nats"] == pytest.approx(np.log(quality.perplexity / evaluate_full(model, sequences)[0]))
    assert row["difference_nats"] == pytest.approx(np.mean(row["differences"]))
    assert row["scored_tokens"] == 3 * 39
    assert (row["dominance_mean"], row["dominance_max"]) == pytest.approx((by_layer.mean(), by_layer.max()))
    assert (row["retained_pairs"], row["distant_kept"]) == pytest.approx((quality.retained_pairs, quality.distant_kept))
    assert row["setting"]["top_k"] == 2
    assert row["setting"]["window"] == 7
    everything = full_row(full, sequences)
    assert everything.keys() == KEYS
    assert everything["differences"] == [0.0] * 3
    json.dumps([row, everything])


def test_a_variant_reaches_temperature_and_iterations(model, centroids, sequences):
    """Sinkhorn at another temperature is another assignment, and the original's is untouched by it."""
    full = score(model, sequences)
    sinkhorn = [
        focus_row(model, centroids, sequences, full, "given", assignment="sinkhorn", **change)["perplexity"]
        for change in ({}, {"temperature": 3.0}, {"sinkhorn_iterations": 1}, {})
    ]
    assert sinkhorn[0] == sinkhorn[3]
    assert len(set(sinkhorn)) == 3
    with pytest.raises(ConfigError, match="unknown setting 'temprature'"):
        variant(centroids, temprature=1.0)


@pytest.mark.parametrize("backend", ["auto", "reference", "masked"])
def test_without_groups_window_and_sinks_are_left(model, centroids, sequences, backend):
    """Against eager attention with that mask written out."""
    nothing = no_groups(centroids)
    focus = compose(model, nothing, window=5, num_sinks=2, backend=backend)
    with torch.no_grad():
        found = model(input_ids=sequences, use_cache=False).logits
    focus.detach()
    i, j = torch.arange(40)[:, None], torch.arange(40)
    mask = torch.where((j <= i) & ((i - j <= 5) | (j < 2)), 0.0, torch.finfo(torch.float32).min)
    with torch.no_grad():
        expected = model(input_ids=sequences, use_cache=False, attention_mask=mask.expand(3, 1, 40, 40)).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    row = focus_row(model, nothing, sequences, score(model, sequences), "none")
    assert row["dominance_mean"] is None
    assert row["distant_kept"] == 0.0


def test_random_centroids_have_the_given_layers_and_are_balanced(model, centroids):
    chance = calibrated_chance(model, restrict(centroids, [0, 2]), random_ids(60, batch=4, seed=9), seed=3)
    assert sorted(chance.routers) == [0, 2]
    assert chance.config.num_groups == 3
    rows = group_balance(model, chance, random_ids(60, batch=4, seed=9))
    assert rows[0]["layer"] == 0
    assert rows[0]["dominance"] < 0.36, "the first layer's hidden states are those it was calibrated on"


def test_leak_rows_pair_the_assignments(model, centroids, sequences):
    rows = assignment_leak(model, centroids, sequences)
    assert [row["setting"].get("assignment") for row in rows] == [None, *["causal", "sinkhorn"] * 3]
    for causal, sinkhorn in zip(rows[1::2], rows[2::2], strict=True):
        expected = np.subtract(sinkhorn["differences"], causal["differences"])
        np.testing.assert_allclose(sinkhorn["against_causal"], expected)
    assert max(map(abs, rows[-1]["against_causal"])) < 1e-5, "k = K is full attention under both"
    assert set(rows[-1]["tokens_differing"].values()) == {0.0}
    focus = compose(model, variant(centroids, top_k=1), assignment="causal")
    other = variant(centroids, top_k=1)
    shares = []
    with torch.no_grad():
        for ids in sequences.split(1):
            final_hidden(model, ids)
            embedded = model.get_input_embeddings()(ids)
            entering = model.model.layers[0].input_layernorm(embedded)
            sinkhorn = other.routers[0].assign(entering, assignment="sinkhorn").membership
            shares.append((focus.assignments()[0].membership != sinkhorn).double().mean().item())
    focus.detach()
    assert rows[2]["tokens_differing"][0] == pytest.approx(np.mean(shares))
    assert 0 < np.mean(shares) < 1
    json.dumps(rows)


def test_the_future_changes_sinkhorn_and_not_causal_groups(model, centroids, sequences):
    rows = future_effect(model, centroids, sequences, top_ks=(1, 3))
    focus = compose(model, variant(centroids, top_k=1), assignment="sinkhorn")
    with torch.no_grad():
        halves = [row[None, :20] for row in sequences]
        alone = [token_nll(model, final_hidden(model, half), half).mean().item() for half in halves]
        whole = [token_nll(model, final_hidden(model, row[None]), row[None])[:, :19].mean().item() for row in sequences]
    focus.detach()
    np.testing.assert_allclose(rows[0]["differences"], np.subtract(whole, alone), atol=1e-5)
    assert max(map(abs, rows[0]["differences"])) > 1e-3
    assert max(map(abs, rows[1]["differences"])) < 1e-5, "with k = K groups decide nothing"
    assert rows[0]["scored_tokens"] == 3 * 19


def test_a_sweep_has_its_nulls_beside_it(model, centroids, sequences):
    rows = sweep_masks(
        model, centroids, sequences, random_ids(40, batch=2, seed=8), top_ks=(1, 3), windows=(2, 4), sinks=(0, 1)
    )
    names = [row["setting"]["centroids"] for row in rows]
    assert names == ["full attention", *["none", *["random", "given"] * 2] * 3]
    places = [(row["setting"]["window"], row["setting"]["num_sinks"]) for row in rows[1:]]
    assert list(dict.fromkeys(places)) == [(2, 1), (4, 1), (4, 0)]
    full = rows[0]["perplexity"]
    for none, random, given in zip(rows[1::5], rows[2::5], rows[3::5], strict=True):
        expected = (none["perplexity"] - given["perplexity"]) / (none["perplexity"] - full)
        assert given["gap_recovered"] == (pytest.approx(expected) if none["perplexity"] > full else None)
        assert given["distant_kept"] > none["distant_kept"] == 0.0
        assert random["perplexity"] != given["perplexity"]
    for row in rows[5::5]:
        assert row["setting"]["top_k"] == 3
        assert row["difference_nats"] == pytest.approx(0.0, abs=1e-6)
    json.dumps(rows)


def test_gap_recovered_is_the_definition():
    assert gap_recovered({"perplexity": 40.0}, {"perplexity": 31.0}, 30.0) == pytest.approx(0.9)
    assert gap_recovered({"perplexity": 30.0}, {"perplexity": 31.0}, 30.0) is None


def test_temperature_and_iterations_are_swept_with_sinkhorn(model, centroids, sequences):
    rows = sweep_assignment(
        model,
        centroids,
        sequences,
        random_ids(40, batch=2, seed=8),
        top_ks=(1,),
        temperatures=(0.1, 2.0),
        iterations=(1, 20),
    )
    given = [row for row in rows if row["setting"]["centroids"] == "given"]
    settings = [(row["setting"]["temperature"], row["setting"]["sinkhorn_iterations"]) for row in given]
    assert settings == [(0.1, 20), (2.0, 20), (0.1, 1)]
    assert {row["setting"]["assignment"] for row in given} == {"sinkhorn"}
    assert [row["setting"]["centroids"] for row in rows].count("none") == 1
    assert len({row["perplexity"] for row in given}) == 3


def test_one_layer_alone_is_the_centroids_restricted_to_it(model, centroids, sequences):
    rows = layers_alone(model, centroids, sequences, top_k=1)
    assert sorted(row["layers"][0] for row in rows[1:]) == [0, 1, 2]
    prices = [row["loss_per_dropped_pair"] for row in rows[1:]]
    assert prices == sorted(prices)
    full = score(model, sequences)
    for row in rows[1:]:
        focus = compose(model, variant(restrict(centroids, row["layers"])), top_k=1)
        found = score(focus, sequences)
        focus.detach()
        assert row["perplexity"] == pytest.approx(found.perplexity)
        dropped = 1 - found.retained_pairs[0]
        assert row["retained_pairs_of_model"] == pytest.approx(1 - dropped / 3)
        assert row["loss_per_dropped_pair"] == pytest.approx((found.nll - full.nll).mean() / dropped)
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


def test_balance_counts_groups_and_calibration_mends_them(model, centroids):
    text = random_ids(60, batch=4, seed=9)
    rows = group_balance(model, centroids, text, text, blocks=3, top_k=1)
    assert [(row["layer"], row["when"]) for row in rows] == [(i, w) for w in ("before", "after") for i in range(3)]
    focus = compose(model, variant(centroids, top_k=1))
    top = []
    with torch.no_grad():
        for ids in text.split(1):
            final_hidden(model, ids)
            top.append(focus.assignments()[0].probabilities[0].argmax(dim=-1))
    focus.detach()
    counts = torch.bincount(torch.cat(top), minlength=3)
    np.testing.assert_allclose(rows[0]["group_shares"], counts / counts.sum())
    assert rows[0]["dominance"] == pytest.approx(counts.max().item() / 240)
    middle = torch.bincount(torch.stack(top)[:, 20:40].flatten(), minlength=3)
    assert rows[0]["dominance_by_block"][1] == pytest.approx(middle.max().item() / 80)
    assert rows[0]["exceeds"] == (rows[0]["dominance"] > 0.5)
    assert rows[3]["dominance"] < 0.36 < rows[0]["dominance"]
    with pytest.raises(InputError, match="blocks is 0"):
        group_balance(model, centroids, text, blocks=0)
