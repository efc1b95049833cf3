"""Perplexity of a text by sliding windows, and scores of many sequences with their comparison."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from focus_runtime import compose, perplexity
from focus_runtime.errors import InputError
from focus_runtime.measure.intervals import mean_interval, sign_flip_test
from focus_runtime.measure.perplexity import MANY_DOCUMENTS, Scores, compare, score
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids


@torch.no_grad()
def losses(model, ids):
    logits = model(input_ids=ids, use_cache=False).logits.double()
    own = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return own.view(ids.shape[0], -1).mean(dim=1).tolist()


def test_scores_are_the_models_own_losses_as_it_is_and_under_focus(tiny_model):
    sequences = random_ids(40, batch=3)
    full = score(tiny_model, sequences)
    assert full.nll.tolist() == pytest.approx(losses(tiny_model, sequences), rel=1e-5)
    assert full.scored.tolist() == [39] * 3
    assert full.dominance.size == 0
    focus = compose(tiny_model, build_centroids(tiny_model))
    scores = score(focus, sequences)
    assert scores.nll.tolist() == pytest.approx(losses(tiny_model, sequences), rel=1e-5)
    assert scores.dominance.shape == scores.retained_pairs.shape == scores.distant_kept.shape == (2,)
    summary = scores.summary()
    assert summary["perplexity"] == pytest.approx(math.exp(scores.nll.mean()))
    assert 0.25 <= summary["dominance"] <= 1
    assert 0 <= summary["distant_kept"] < summary["retained_pairs"] < 1
    focus.detach()
    everything = score(compose(tiny_model, build_centroids(tiny_model), top_k=4), sequences).summary()
    assert everything["perplexity"] == pytest.approx(full.perplexity, rel=1e-5)
    assert (everything["retained_pairs"], everything["distant_kept"], everything["scored"]) == (1.0, 1.0, 117)


def test_layers_without_distant_pairs_do_not_count_among_those_that_keep_them(tiny_model):
    sequences = random_ids(40, batch=3)
    full, centroids = score(tiny_model, sequences), build_centroids(tiny_model)
    focus = compose(tiny_model, centroids, top_k=1, budget=[{"layer": 0, "window": 40}])
    scores = score(focus, sequences)
    assert np.isnan(scores.distant_kept).tolist() == [True, False]
    assert scores.distant_kept[1] < 1
    assert compare(full, scores)["distant_kept"] == scores.distant_kept[1]
    focus.detach()
    none = compare(full, score(compose(tiny_model, centroids, window=40), sequences))
    assert none["distant_kept"] is None
    assert json.loads(json.dumps(none, allow_nan=False)) == none


def scores_of(nll, *, scored=100, layers=2):
    """Scores made up from losses; without layers they are those of full attention."""
    nll = np.asarray(nll, dtype=np.float64)
    shares = np.linspace(0.25, 0.35, layers)
    return Scores(nll, np.broadcast_to(scored, nll.shape).astype(np.int64), shares, shares + 0.2, shares)


def pair(generator, units=20, shift=0.05):
    plain = generator.normal(3, 0.5, size=units)
    return scores_of(plain, layers=0), scores_of(plain + generator.normal(shift, 0.02, size=units))


def test_comparing_gives_perplexities_difference_and_what_they_must_be_read_with(fresh_seed):
    full, focus = pair(np.random.default_rng(fresh_seed))
    comparison = compare(full, focus)
    assert comparison["full_perplexity"]["value"] == pytest.approx(full.perplexity)
    assert comparison["focus_perplexity"]["value"] == pytest.approx(focus.perplexity)
    ratio = focus.perplexity / full.perplexity
    assert comparison["relative_difference"]["value"] == pytest.approx(ratio - 1)
    expected = mean_interval(focus.nll - full.nll)
    assert comparison["difference_nats"] == pytest.approx(expected.to_dict())
    assert comparison["relative_difference"]["low"] == pytest.approx(math.expm1(expected.low))
    assert comparison["p_value"] == sign_flip_test(focus.nll - full.nll)
    assert (comparison["sequences"], comparison["tokens"], comparison["seeds"], comparison["units"]) == (
        20,
        2000,
        1,
        "sequences",
    )
    assert (comparison["dominance"], comparison["highest_dominance"]) == pytest.approx((0.3, 0.35))
    assert (comparison["retained_pairs"], comparison["distant_kept"]) == pytest.approx((0.5, 0.3))
    assert json.loads(json.dumps(comparison)) == comparison


def test_several_seeds_widen_the_interval_and_few_are_said(fresh_seed):
    generator = np.random.default_rng(fresh_seed)
    full, _ = pair(generator)
    runs = [scores_of(full.nll + shift + generator.normal(0, 0.01, size=20)) for shift in (0.0, 0.05, 0.1)]
    three, one = compare(full, runs), compare(full, runs[1])
    assert three["seeds"] == 3
    assert not any("seed" in note for note in three["notes"])
    assert any("1 training seed" in note for note in one["notes"])
    assert any("2 training seeds" in note for note in compare(full, runs[:2])["notes"])
    wide, narrow = (
        comparison["difference_nats"]["high"] - comparison["difference_nats"]["low"] for comparison in (three, one)
    )
    assert wide > 3 * narrow
    assert three["difference_nats"]["value"] == pytest.approx(np.mean([run.nll - full.nll for run in runs]))


def test_documents_are_the_units_where_there_are_enough():
    generator = np.random.default_rng(2)
    labels = np.repeat(np.arange(10), 6)
    by_document = generator.normal(0.05, 0.1, size=10)[labels]
    full = scores_of(generator.normal(3, 0.5, size=60), layers=0)
    focus = scores_of(full.nll + by_document + generator.normal(0, 0.01, size=60))
    comparison, loose = compare(full, focus, documents=[f"novel {i}" for i in labels]), compare(full, focus)
    assert (comparison["units"], comparison["documents"]) == ("documents", 10)
    assert (loose["units"], loose["documents"]) == ("sequences", 1)
    assert comparison["difference_nats"]["value"] == pytest.approx(loose["difference_nats"]["value"])
    widths = [f["difference_nats"]["high"] - f["difference_nats"]["low"] for f in (comparison, loose)]
    assert widths[0] > 1.8 * widths[1]  # sequences of a document are alike: sixty of them say little more than ten
    assert not any("document" in note for note in comparison["notes"])
    few = compare(full, focus, documents=labels // 2)
    assert len(set(labels // 2)) < MANY_DOCUMENTS
    assert few["units"] == "sequences"
    assert any("5 documents" in note for note in few["notes"])


def test_tokens_weigh(fresh_seed):
    generator = np.random.default_rng(fresh_seed)
    nll, scored = generator.normal(3, 1, size=12), generator.integers(10, 200, size=12)
    full, focus = scores_of(nll, scored=scored, layers=0), scores_of(nll + generator.normal(size=12), scored=scored)
    comparison = compare(full, focus)
    assert comparison["full_perplexity"]["value"] == pytest.approx(full.perplexity)
    assert comparison["difference_nats"]["value"] == pytest.approx(math.log(focus.perplexity / full.perplexity))


def test_one_sequence_and_identical_scores():
    full, focus = scores_of([3.0], layers=0), scores_of([3.1])
    comparison = compare(full, focus)
    assert comparison["difference_nats"]["low"] is None
    assert comparison["p_value"] == 1.0
    assert any("1 sequence" in note for note in comparison["notes"])
    same = compare(scores_of([3.0, 3.2, 2.9], layers=0), scores_of([3.0, 3.2, 2.9]))
    assert same["relative_difference"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert same["p_value"] == 1.0


def test_what_cannot_be_compared_is_refused():
    full, focus = scores_of([3.0, 3.1], layers=0), scores_of([3.0, 3.1])
    with pytest.raises(InputError, match="same sequences"):
        compare(full, scores_of([3.0]))
    with pytest.raises(InputError, match="same sequences"):
        compare(full, scores_of([3.0, 3.1], scored=90))
    with pytest.raises(InputError, match="under Focus"):
        compare(full, full)
    with pytest.raises(InputError, match="under Focus"):
        compare(full, [])
    with pytest.raises(InputError, match="1 documents are named for 2"):
        compare(full, focus, documents=["a"])
    with pytest.raises(InputError, match="NaN"):
        compare(full, scores_of([3.0, math.nan]))


# --- perplexity of one text


@torch.no_grad()
def by_definition(model, ids, length, stride):
    """Loss of each token from a forward pass of its own window."""
    losses = []
    for position in range(1, len(ids)):
        start = 0
        while start + length <= position:
            start += stride
        window = torch.tensor([ids[start : position + 1]])
        logits = model(input_ids=window, use_cache=False).logits[0, -2].double()
        losses.append(torch.logsumexp(logits, -1).item() - logits[ids[position]].item())
    return losses


@pytest.mark.parametrize(
    ("length", "stride", "total"),
    [(8, 4, 2), (8, 4, 8), (8, 4, 9), (8, 7, 30), (8, 1, 29), (2, 1, 9), (50, 25, 30), (30, None, 30)],
)
def test_perplexity_is_its_definition(tiny_model, length, stride, total):
    ids = random_ids(total, seed=total)[0].tolist()
    result = perplexity(tiny_model, ids, length=length, stride=stride)
    expected = by_definition(tiny_model, ids, length, stride or length // 2)
    assert result.nll.tolist() == pytest.approx(expected, abs=1e-4)
    assert result.scored == total - 1
    assert float(result) == result.value == pytest.approx(math.exp(sum(expected) / len(expected)), rel=1e-4)


def test_text_tokens_and_tensors_are_the_same(tiny_model):
    tokenizer, text = build_tokenizer(), "It is a truth universally acknowledged."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    values = [
        perplexity(tiny_model, text, tokenizer=tokenizer, length=16).value,
        perplexity(tiny_model, ids, length=16).value,
        perplexity(tiny_model, torch.tensor([ids]), length=16).value,
        perplexity(tiny_model, np.array(ids), length=16).value,
    ]
    assert len(set(values)) == 1
    assert perplexity(tiny_model, ids, length=16, max_tokens=10).scored == 9


def test_a_composed_model_is_scored_under_focus(tiny_model):
    ids = random_ids(60)[0].tolist()
    full = perplexity(tiny_model, ids, length=32).value
    focus = compose(tiny_model, build_centroids(tiny_model))
    try:
        sparse = perplexity(focus, ids, length=32).value
        assert sparse == perplexity(tiny_model, ids, length=32).value != full
        with focus.full_attention():
            assert perplexity(focus, ids, length=32).value == full
    finally:
        focus.detach()


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("a text", {}, "tokenizer"),
        ([5], {}, "1 tokens"),
        ([], {}, "0 tokens"),
        ([5, 6, 7], {"length": 1}, "length is 1"),
        ([5, 6, 7], {"length": 8, "stride": 8}, "stride 8"),
        ([5, 6, 7], {"length": 8, "stride": 0}, "stride is 0"),
        ([5, 6, 7], {"length": "16"}, "length is '16'"),
        ([5, 6, 7], {"length": 10.5}, "length is 10.5"),
        ([5, 6, 7], {"length": None}, "length is None"),
        ([5, 6, 7], {"max_tokens": -5}, "max_tokens is -5"),
        ([5, 6, 7], {"max_tokens": 2.5}, "max_tokens is 2.5"),
        (None, {}, "NoneType"),
        ([5, 6, 100_000], {}, "ids of this model"),
        ([5, -1], {}, "ids of this model"),
        ([5, 6.5], {}, "whole numbers"),
        ([[5, 6], [7, 8]], {}, "2 texts"),
    ],
)
def test_bad_input_of_perplexity_is_named(tiny_model, text, settings, message):
    with pytest.raises(InputError, match=message):
        perplexity(tiny_model, text, **settings)


def test_more_tokens_than_learned_positions_is_one_message():
    with pytest.raises(InputError, match="positions"):
        perplexity(build_model("GPT2", max_position_embeddings=32), random_ids(60)[0].tolist(), length=50)
