"""The random baseline: its seed is never that of the run it is compared with, and its groups are balanced."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig, TextOptions
from focus_runtime.measure.loss import final_hidden
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.centroids import random_centroids
from focus_runtime.run.random_baseline import (
    COMPARISON_SEED,
    STATISTICS_SEED,
    baseline_seed,
    random_baseline,
    random_groups,
    random_seed,
)
from focus_runtime.run.text import composed
from tests.helpers import build_centroids, build_model, random_ids


@pytest.fixture(scope="module")
def model():
    return build_model(num_hidden_layers=3)


@pytest.mark.parametrize("preferred", [STATISTICS_SEED, COMPARISON_SEED, 7])
def test_the_baseline_of_random_centroids_has_another_seed(preferred):
    for own in (None, STATISTICS_SEED, COMPARISON_SEED, 7, 8):
        seed = baseline_seed(own, preferred)
        assert seed != own
        assert seed == preferred or own == preferred


def test_the_seed_of_untrained_centroids_is_read_from_themselves_and_from_their_file(model, tmp_path):
    drawn = random_centroids(model, FocusConfig(num_groups=3), seed=1000)
    save_centroids(drawn, tmp_path / "drawn.safetensors")
    assert random_seed(drawn) == random_seed(load_centroids(tmp_path / "drawn.safetensors")) == 1000
    drawn.training["steps"] = 5
    assert random_seed(drawn) is None
    drawn.training = {}
    assert random_seed(drawn) is None


@pytest.mark.slow
def test_random_centroids_have_the_given_layers_and_are_balanced(model):
    config = build_centroids(model, num_groups=3, window=4, num_sinks=1).config
    text = random_ids(60, batch=4, seed=9)
    random = random_baseline(model, config, seed=3, layers=[0, 2], calibrate_on=text)
    assert sorted(random.routers) == [0, 2]
    assert random.config.num_groups == 3
    focus = compose(model, random)
    with torch.no_grad():
        model(input_ids=text, use_cache=False)
    groups = torch.bincount(focus.assignments()[0].probabilities.argmax(dim=-1).flatten(), minlength=3)
    focus.detach()
    assert groups.max() < 0.36 * text.numel(), "the first layer's hidden states are those it was calibrated on"


def test_groups_of_a_text_are_those_of_the_composed_baseline(model):
    config = FocusConfig(num_groups=3, window=4, num_sinks=1)
    ids, balance = random_ids(30, seed=2)[0].tolist(), random_ids(50, seed=3)[0].tolist()
    groups = random_groups(model, config, [0, 2], ids, balance, seed=4)
    assert (groups.seed, groups.balanced_on, [layer.layer for layer in groups.layers]) == (4, 50, [0, 2])
    assert groups.nll.shape == (29,)
    assert groups.perplexity == pytest.approx(float(np.exp(groups.nll.mean())))
    baseline = random_baseline(model, config, seed=4, layers=[0, 2], calibrate_on=balance)
    with composed(model, baseline, TextOptions(), len(ids)) as focus:
        final_hidden(model, torch.tensor([ids]))
        executed = {index: assignment.membership[0].numpy() for index, assignment in focus.assignments().items()}
    for layer in groups.layers:
        np.testing.assert_array_equal(layer.membership, executed[layer.layer])
        assert ((layer.membership >> layer.top_group) & 1).all(), "the most probable group is one of the token's groups"
