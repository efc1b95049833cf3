"""Scores per sequence against the perplexities measured over all of them together."""

from __future__ import annotations

import numpy as np
import pytest

from focus_runtime.compose import compose
from focus_runtime.evaluate import score
from focus_runtime.measure import evaluate_focus, evaluate_full
from tests.helpers import build_centroids, random_ids


def test_the_mean_over_sequences_is_the_perplexity_over_all_tokens(tiny_model):
    sequences = random_ids(40, batch=5)
    full, count = evaluate_full(tiny_model, sequences)
    found = score(tiny_model, sequences)
    assert found.perplexity == pytest.approx(full)
    assert found.scored.tolist() == [39] * 5
    assert found.scored.sum() == count
    assert found.dominance.size == 0
    assert len(set(np.round(found.nll, 9))) == 5


def test_under_focus_the_shares_come_by_layer(tiny_model):
    sequences = random_ids(40, batch=3)
    focus = compose(tiny_model, build_centroids(tiny_model), top_k=1)
    expected = evaluate_focus(focus, sequences)
    found = score(focus, sequences)
    assert found.perplexity == pytest.approx(expected.perplexity)
    assert found.dominance.shape == found.retained_pairs.shape == found.distant_kept.shape == (2,)
    assert found.dominance.mean() == pytest.approx(expected.dominance)
    assert found.retained_pairs.mean() == pytest.approx(expected.retained_pairs)
    assert found.distant_kept.mean() == pytest.approx(expected.distant_kept)
