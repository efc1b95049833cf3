"""Rows of the studies against composing and scoring by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from focus_runtime.composition.attach import compose
from focus_runtime.errors import ConfigError
from focus_runtime.measure.loss import evaluate_focus, evaluate_full
from focus_runtime.measure.perplexity import score
from paper.studies.rows import focus_row, full_row, gap_recovered, variant

pytestmark = [
    pytest.mark.slow,  # many short trainings or compositions; they run in make test
    pytest.mark.usefixtures("centroids_unchanged"),
]

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


def test_gap_recovered_is_the_definition():
    assert gap_recovered({"perplexity": 40.0}, {"perplexity": 31.0}, 30.0) == pytest.approx(0.9)
    assert gap_recovered({"perplexity": 30.0}, {"perplexity": 31.0}, 30.0) is None
