"""Random centroids as a method to compare with."""

from __future__ import annotations

import pytest

from focus_runtime.errors import InputError
from focus_runtime.measure.perplexity import score
from paper.methods import BASELINES
from tests.helpers import random_ids

pytestmark = pytest.mark.slow


def test_random_centroids_need_a_text(tiny_model):
    with pytest.raises(InputError, match="no text"):
        BASELINES["random_centroids"]().attach(tiny_model)


def test_random_centroids_are_balanced_and_scored_with_their_dominance(tiny_model):
    text = random_ids(64, batch=4, seed=3)
    with BASELINES["random_centroids"](window=4, seed=2).attach(tiny_model, text=text) as handle:
        with pytest.raises(InputError, match="no forward pass"):
            handle.retained_pairs()
        scores = score(handle.focus, text)
        assert (scores.dominance < 0.5).all()
        single = score(handle.focus, text[-1:])
        assert handle.retained_pairs() == pytest.approx(single.retained_pairs.mean())
