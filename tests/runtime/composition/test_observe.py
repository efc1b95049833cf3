"""Listening to routers and attention modules, and replacing what routers decide, leaves no trace behind."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.composition.observe import (
    observe_attention,
    observe_hidden_states,
    observe_routing,
    recorded_outputs,
    replace_assignment,
    resumed_at,
)
from focus_runtime.models.structure import decoder_layers
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.families import logits


@pytest.fixture
def focus(tiny_model):
    handle = compose(tiny_model, build_centroids(tiny_model))
    yield handle
    handle.detach()


@torch.no_grad()
def run(focus, ids):
    return focus.model(input_ids=ids, use_cache=False).logits


def unobserved(focus):
    return not any(router.observers for router in focus.routers.values())


def test_embeddings_and_logits_are_those_of_the_routers(focus, ids):
    hidden, vectors, logits = {}, {}, {}
    before = run(focus, ids)
    with (
        observe_hidden_states(focus.model, focus.focused_layers, hidden.__setitem__),
        observe_routing(focus, on_embedding=vectors.__setitem__, on_logits=logits.__setitem__),
    ):
        observed = run(focus, ids)
    assert list(vectors) == list(logits) == [0, 1]
    torch.testing.assert_close(observed, before)
    for index, router in focus.routers.items():
        expected = hidden[index] @ router.projection
        torch.testing.assert_close(vectors[index], expected)
        torch.testing.assert_close(logits[index], expected @ router.centroids.T / router.config.temperature)
    assert unobserved(focus)
    vectors.clear()
    run(focus, ids)
    assert not vectors


def test_stop_gradient_keeps_gradients_from_the_hidden_states(focus):
    router, hidden = focus.routers[0], torch.randn(1, 5, 64, requires_grad=True)
    with observe_routing(focus, stop_gradient=True):
        router.assign(hidden).probabilities[..., 0].sum().backward()
    assert hidden.grad is None
    assert router.projection.grad is not None
    router.assign(hidden).probabilities[..., 0].sum().backward()
    assert hidden.grad.abs().sum() > 0


def test_a_replaced_assignment_decides_the_mask_and_the_innermost_wins(focus, ids):
    def first_group(index, router, hidden, padding):
        own = router.own_assignment(hidden, padding=padding)
        return dataclasses.replace(own, membership=torch.ones_like(own.membership))

    def second_group(index, router, hidden, padding):
        own = router.own_assignment(hidden, padding=padding)
        return dataclasses.replace(own, membership=torch.full_like(own.membership, 2))

    before = run(focus, ids)
    with focus.full_attention():
        full = run(focus, ids)
    with replace_assignment(focus, first_group):
        torch.testing.assert_close(run(focus, ids), full, rtol=1e-5, atol=1e-5)
        with replace_assignment(focus, second_group):
            run(focus, ids)
            assert set(focus.assignments()[0].membership.flatten().tolist()) == {2}
        run(focus, ids)
        assert set(focus.assignments()[0].membership.flatten().tolist()) == {1}
    assert torch.equal(run(focus, ids), before)


def test_every_observer_is_removed_after_an_exception(focus, ids):
    def fail(*_):
        raise RuntimeError("stop")

    for block in (
        observe_routing(focus, on_embedding=fail),
        observe_routing(focus, on_logits=fail),
        replace_assignment(focus, fail),
        observe_hidden_states(focus.model, [1], fail),
        observe_attention(focus, fail),
    ):
        before = run(focus, ids)
        with pytest.raises(RuntimeError, match="stop"), block:
            run(focus, ids)
        assert unobserved(focus)
        assert focus.modes == ()
        assert torch.equal(run(focus, ids), before)
        assert focus.model.config._attn_implementation == "focus"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Llama", "GPT2", "Gemma2", "Gemma3Text", "Mistral", "Phi3", "Olmo2", "GPTNeoX"])
def test_a_change_in_one_layer_is_seen_from_there_on(family, ids):
    model = build_model(family, num_hidden_layers=4 if family != "Gemma3Text" else 2)
    layers = len(decoder_layers(model))
    focus = compose(model, build_centroids(model, layers=tuple(range(layers))), sliding_layers="focus")
    with recorded_outputs(model) as recorded:
        before = logits(model, ids)
    assert sorted(recorded.outputs) == list(range(layers))
    for layer in range(layers):
        focus.config = focus.config.replace(budget=[{"layer": layer, "head": 0, "top_k": 4}])
        whole = logits(model, ids)
        with resumed_at(model, layer, recorded):
            assert torch.equal(logits(model, ids), whole)
        assert torch.equal(logits(model, ids), whole)
        assert not torch.equal(whole, before)
    focus.detach()


def test_layers_before_it_compute_nothing(ids):
    model = build_model(num_hidden_layers=3)
    with recorded_outputs(model) as recorded:
        logits(model, ids)
    called = []
    for index, block in decoder_layers(model).items():
        block.mlp.register_forward_hook(lambda *_, index=index: called.append(index))
    with resumed_at(model, 2, recorded):
        logits(model, ids)
    assert called == [2]


def test_an_error_inside_leaves_the_model_whole(ids):
    model = build_model(num_hidden_layers=3)
    with recorded_outputs(model) as recorded:
        before = logits(model, ids)
    with pytest.raises(ValueError, match="mine"), resumed_at(model, 2, recorded):
        raise ValueError("mine")
    assert torch.equal(logits(model, ids), before)
    assert not any("forward" in block.__dict__ or block._forward_hooks for block in decoder_layers(model).values())


@pytest.mark.parametrize("similarity", [0.3, 0.6])
def test_sinks_of_the_text_found_before_it_are_known(similarity, fresh_seed):
    model = build_model(num_hidden_layers=4)
    settings = {"text_sinks": similarity, "text_sinks_from": 0}
    focus = compose(model, build_centroids(model, layers=(0, 1, 2, 3), **settings))
    texts = [random_ids(40, seed=fresh_seed % 1000 + number) for number in range(2)]
    recorded, whole = [], []
    for ids in texts:
        with recorded_outputs(model) as one:
            whole.append(logits(model, ids))
        recorded.append(one)
    assert any(sinks.any() for one in recorded for sinks in one.sinks.values())
    for layer in range(1, 4):
        for ids, one, before in zip(texts, recorded, whole, strict=True):
            with resumed_at(model, layer, one):
                assert torch.equal(logits(model, ids), before)
    focus.detach()
