"""Scores per sequence against the perplexities measured over all of them together."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError
from focus_runtime.measure.intervals import mean_interval, sign_flip_test
from focus_runtime.measure.loss import evaluate_focus, evaluate_full
from focus_runtime.measure.perplexity import MANY_DOCUMENTS, Scores, compare, score
from tests.helpers import build_centroids, random_ids


def test_the_mean_over_sequences_is_the_perplexity_over_all_tokens(tiny_model):
    sequences = random_ids(40, batch=5)
    full, count = evaluate_full(tiny_model, sequences)
    scores = score(tiny_model, sequences)
    assert scores.perplexity == pytest.approx(full)
    assert scores.scored.tolist() == [39] * 5
    assert scores.scored.sum() == count
    assert scores.dominance.size == 0
    assert len(set(np.round(scores.nll, 9))) == 5


def test_under_focus_the_shares_come_by_layer(tiny_model):
    sequences = random_ids(40, batch=3)
    focus = compose(tiny_model, build_centroids(tiny_model), top_k=1)
    expected = evaluate_focus(focus, sequences)
    scores = score(focus, sequences)
    assert scores.perplexity == pytest.approx(expected.perplexity)
    assert scores.dominance.shape == scores.retained_pairs.shape == scores.distant_kept.shape == (2,)
    assert scores.dominance.mean() == pytest.approx(expected.dominance)
    assert scores.retained_pairs.mean() == pytest.approx(expected.retained_pairs)
    assert scores.distant_kept.mean() == pytest.approx(expected.distant_kept)


def test_layers_without_distant_pairs_do_not_count_among_those_that_keep_them(tiny_model):
    sequences = random_ids(40, batch=3)
    full, centroids = score(tiny_model, sequences), build_centroids(tiny_model)
    focus = compose(tiny_model, centroids, top_k=1, budget=[{"layer": 0, "window": 40}])
    scores = score(focus, sequences)
    assert np.isnan(scores.distant_kept).tolist() == [True, False]
    assert scores.distant_kept[1] < 1
    assert evaluate_focus(focus, sequences).distant_kept == pytest.approx(scores.distant_kept[1])
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


def test_the_paired_interval_is_far_tighter_than_the_perplexities_own():
    comparison = compare(*pair(np.random.default_rng(1)))
    width = comparison["focus_perplexity"]["high"] - comparison["focus_perplexity"]["low"]
    assert comparison["relative_difference"]["low"] > 0
    assert comparison["p_value"] < 0.001
    assert width > 5 * (comparison["relative_difference"]["high"] - comparison["relative_difference"]["low"])


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
