"""Settings of the runtime's unit tests."""

from __future__ import annotations

import pytest
import torch

from focus_runtime import native
from focus_runtime.composition.attach import compose
from focus_runtime.routing.router import CentroidRouter
from focus_runtime.text.sequences import step_sequences
from tests.helpers import build_centroids, random_ids
from tests.runtime.near_ties import ATTEMPT, pytest_runtest_call, pytest_runtest_protocol  # noqa: F401 - hooks


@pytest.fixture(autouse=True, scope="package")
def _one_thread():
    """Tiny tensors gain nothing from threads, and on a busy machine waiting for them takes most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def near_ties(monkeypatch):
    """The smallest gap between a chosen and a rejected group in this test, in a list; see `near_ties.py`."""
    smallest = [float("inf")]
    assign = CentroidRouter.assign

    def watched(self, hidden, **kwargs):
        result = assign(self, hidden, **kwargs)
        if self.config.top_k < self.config.num_groups:
            ranked = torch.log(result.probabilities).sort(dim=-1, descending=True).values
            gap = ranked[..., self.config.top_k - 1] - ranked[..., self.config.top_k]
            smallest[0] = min(smallest[0], gap.min().item())
        return result

    monkeypatch.setattr(CentroidRouter, "assign", watched)
    return smallest


@pytest.fixture
def ids(request):
    """(1, 40) token ids; others when a test is run again after a near tie."""
    return random_ids(40, seed=request.node.stash.get(ATTEMPT, 0))


@pytest.fixture
def batches(monkeypatch):
    """Every batch the training loop has drawn since the test began or cleared this list."""
    drawn: list[torch.Tensor] = []

    def recorded(*args):
        drawn.append(step_sequences(*args))
        return drawn[-1]

    monkeypatch.setattr("focus_runtime.fit.loop.step_sequences", recorded)
    return drawn


@pytest.fixture
def composing(near_ties):
    """compose() with random centroids, undone at the end of the test; gives the model and the handle."""
    made = []

    def make(model, **settings):
        made.append(compose(model, build_centroids(model), **settings))
        return model, made[-1]

    yield make
    for focus in made:
        focus.detach()


@pytest.fixture
def broken_library(monkeypatch):
    """Forgets the functions that were loaded, before and after; gives the monkeypatch that makes building fail."""
    native.library.cache_clear()
    yield monkeypatch
    native.library.cache_clear()
