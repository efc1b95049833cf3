"""Centroids without training."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.measure.perplexity import score
from focus_runtime.routing.centroids import no_groups, random_centroids
from tests.helpers import build_centroids, build_model, random_ids


def test_random_centroids_are_reproducible_and_cover_the_configured_layers(tiny_model):
    first, second, other = (random_centroids(tiny_model, FocusConfig(), seed=s) for s in (1, 1, 2))
    assert torch.equal(first.routers[1].projection, second.routers[1].projection)
    assert not torch.equal(first.routers[1].projection, other.routers[1].projection)
    assert not torch.equal(first.routers[0].projection, first.routers[1].projection)
    assert first.sha256 == second.sha256 != other.sha256
    assert list(random_centroids(tiny_model, FocusConfig(layers=(1,))).routers) == [1]
    assert not first.has_potentials


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
    focus = compose(model, nothing)
    assert score(focus, sequences).mean_distant_kept == 0.0
    focus.detach()


@torch.no_grad()
def test_looking_for_text_sinks_gives_no_head_any_group(model, centroids, sequences):
    """Uniform probabilities decide nothing, whatever a head's top-k; a token that is found belongs to all groups."""
    budget = (HeadException(layer=0, top_k=2), HeadException(layer=1, query_head=1, top_k=2, window=3))
    settings = {"window": 5, "num_sinks": 2, "budget": budget}
    nothing = no_groups(centroids)
    focus = compose(model, nothing, **settings)
    expected = model(input_ids=sequences, use_cache=False).logits
    focus.detach()
    nothing.config = nothing.config.replace(text_sinks=1.0, text_sinks_from=0)
    focus = compose(model, nothing, **settings)
    actual = model(input_ids=sequences, use_cache=False).logits
    found = list(focus.found_sinks.by_layer.values())
    masks = [mask for masks in focus.head_masks().values() for mask in masks]
    focus.detach()
    assert found
    assert not any(tokens.any() for tokens in found)
    assert not any(mask.membership.any() for mask in masks)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@torch.no_grad()
def test_decode_steps_have_no_groups_either(model, centroids, sequences):
    focus = compose(model, no_groups(centroids), window=5, num_sinks=2)
    ids = sequences[:1]
    whole = model(input_ids=ids, use_cache=False).logits[:, 29:]
    out = model(input_ids=ids[:, :30], use_cache=True)
    logits = [out.logits[:, -1:]]
    for place in range(30, 40):
        out = model(input_ids=ids[:, place : place + 1], past_key_values=out.past_key_values, use_cache=True)
        logits.append(out.logits)
    focus.detach()
    torch.testing.assert_close(torch.cat(logits, 1), whole, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_gpus_kernels_give_none(model, centroids, sequences, monkeypatch):
    """Routing in Triton, in its interpreter, decides by centroids, which are not what decides here."""
    pytest.importorskip("triton")
    focus = compose(model, no_groups(centroids), window=5, num_sinks=2)
    expected = model(input_ids=sequences, use_cache=False).logits
    monkeypatch.setattr("focus_runtime.routing.router.takes_hidden", lambda _: True)
    actual = model(input_ids=sequences, use_cache=False).logits
    assert not any(each.membership.any() for each in focus.assignments().values())
    focus.detach()
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
