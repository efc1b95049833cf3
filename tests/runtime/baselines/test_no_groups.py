"""Centroids without groups: window and sinks alone."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.baselines.no_groups import no_groups
from focus_runtime.composition.attach import compose
from focus_runtime.measure.scores import score
from focus_runtime.studies.rows import focus_row
from tests.helpers import build_centroids, build_model, random_ids

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model():
    return build_model(num_hidden_layers=3)


@pytest.fixture(scope="module")
def sequences():
    return random_ids(40, batch=3, seed=5)


@pytest.fixture
def centroids(model):
    return build_centroids(model, num_groups=3, window=4, num_sinks=1)


@pytest.mark.parametrize("backend", ["auto", "reference", "masked"])
def test_without_groups_window_and_sinks_are_left(model, centroids, sequences, backend):
    """Against eager attention with that mask written out."""
    nothing = no_groups(centroids)
    focus = compose(model, nothing, window=5, num_sinks=2, backend=backend)
    with torch.no_grad():
        actual = model(input_ids=sequences, use_cache=False).logits
    focus.detach()
    i, j = torch.arange(40)[:, None], torch.arange(40)
    mask = torch.where((j <= i) & ((i - j <= 5) | (j < 2)), 0.0, torch.finfo(torch.float32).min)
    with torch.no_grad():
        expected = model(input_ids=sequences, use_cache=False, attention_mask=mask.expand(3, 1, 40, 40)).logits
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    row = focus_row(model, nothing, sequences, score(model, sequences), "none")
    assert row["dominance_mean"] is None
    assert row["distant_kept"] == 0.0
