"""Random centroids are balanced once for a model and its settings, and alike each time."""

from __future__ import annotations

import copy

import pytest
import torch

from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.centroids import ready
from focus_explorer.usecases.centroids.ready import calibrate, ready_centroids
from focus_explorer.usecases.models import LoadedModel
from focus_explorer.usecases.service import Latest
from focus_runtime.fit import calibrate as runtime
from tests.helpers import build_model, build_tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture
def loaded():
    return LoadedModel("tiny", build_model(vocab_size=512), build_tokenizer(), "weights-1")


@pytest.fixture
def passes(monkeypatch):
    """One entry per estimate that was really made."""
    monkeypatch.setattr(ready, "_potentials", Latest(16))
    made, estimate = [], runtime.calibrate_potentials
    monkeypatch.setattr(runtime, "calibrate_potentials", lambda *a, **n: (made.append(a), estimate(*a, **n))[1])
    return made


def drawn(loaded, **changes):
    chosen = {"num_groups": 4, "routing_dim": 6, "window": 8, "seed": 0} | changes
    centroids = ready_centroids(None, loaded, AnalyzeRequest(**chosen), chosen["seed"])
    calibrate(loaded, centroids)
    return centroids


def test_the_second_time_they_are_the_same_without_a_pass(loaded, passes):
    first, second = drawn(loaded), drawn(loaded)
    assert len(passes) == 1
    assert second.has_potentials
    assert any("column potentials" in warning for warning in second.warnings)
    for layer, router in first.routers.items():
        assert router.potential.abs().max() > 0
        assert torch.equal(router.potential, second.routers[layer].potential)
    second.routers[0].potential.zero_()  # what a caller does to its own stays its own
    assert torch.equal(drawn(loaded).routers[0].potential, first.routers[0].potential)


def test_whatever_they_depend_on_makes_new_ones(loaded, passes):
    drawn(loaded)
    for changes in ({"seed": 1}, {"window": 4}, {"num_groups": 3}):
        drawn(loaded, **changes)
    other = LoadedModel("tiny", loaded.model, loaded.tokenizer, "weights-2")
    drawn(other)
    narrow = LoadedModel("tiny", copy.deepcopy(loaded.model).bfloat16(), loaded.tokenizer, "weights-1")
    drawn(narrow)
    assert len(passes) == 6


def test_a_model_with_few_positions_is_balanced_on_as_many_tokens(passes):
    """GPT-2's positions are a table, which ends at 1,024."""
    gpt2 = LoadedModel(
        "tiny", build_model("GPT2", vocab_size=512, max_position_embeddings=100), build_tokenizer(), "weights-1"
    )
    note = drawn(gpt2).warnings[-1]
    assert "estimated on 100 tokens" in note
