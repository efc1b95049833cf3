"""Settings of the runtime's unit tests."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.routing.router import CentroidRouter
from tests.helpers import build_centroids

ROUNDING = 1e-4  # of scores over temperature, whose fp32 rounding errors are below 1e-5


@pytest.fixture(autouse=True, scope="package")
def _one_thread():
    """Tiny tensors gain nothing from threads, and on a busy machine waiting for them takes most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def near_ties(monkeypatch):
    """Skip instead of failing where rounding may have chosen the group: two ways of computing a hidden state differ by
    1e-7, so with fresh random texts about one test in ten thousand meets a token between two groups."""
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
def composing(near_ties):
    """compose() with random centroids, undone at the end of the test; gives the model and the handle."""
    made = []

    def make(model, **settings):
        made.append(compose(model, build_centroids(model), **settings))
        return model, made[-1]

    yield make
    for focus in made:
        focus.detach()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Turn a failure at a near tie into a skip that says so."""
    try:
        return (yield)
    except AssertionError:
        smallest = item.funcargs.get("near_ties", [float("inf")])[0]
        if smallest < ROUNDING:
            pytest.skip(f"a token's groups differ by {smallest:.1e} only, so rounding decides")
        raise
