"""Listening to routers and attention modules, and replacing what routers decide, leaves no trace behind."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.composition.observe import (
    OBSERVER,
    observe_attention,
    observe_hidden_states,
    observe_routing,
    replace_assignment,
)
from tests.helpers import build_centroids, build_model, random_ids


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


def test_centroids_can_be_observed_before_they_are_composed(tiny_model, ids):
    centroids, routing_logits = build_centroids(tiny_model), {}
    with observe_routing(centroids, on_logits=routing_logits.__setitem__):
        focus = compose(tiny_model, centroids)
        run(focus, ids)
    focus.detach()
    assert routing_logits[1].shape == (1, 40, 4)


def test_observed_logits_without_an_embedding_observer_are_bit_for_bit_the_routers_own(focus, ids):
    plain, hidden, observed = {}, {}, {}
    with observe_hidden_states(focus.model, [0], hidden.__setitem__):
        run(focus, ids)
    with torch.no_grad():
        plain[0] = focus.routers[0].logits(hidden[0])
        with observe_routing(focus, on_logits=observed.__setitem__):
            focus.routers[0].logits(hidden[0])
    assert torch.equal(observed[0], plain[0])


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
        assert not any(OBSERVER in vars(module) for module in focus.model.modules())
        assert torch.equal(run(focus, ids), before)
        assert focus.model.config._attn_implementation == "focus"


def test_nested_listeners_both_hear_and_are_removed_in_any_order(focus, ids):
    outer, inner = {}, {}
    first = observe_routing(focus, on_embedding=outer.__setitem__)
    second = observe_routing(focus, on_embedding=inner.__setitem__)
    first.__enter__()
    second.__enter__()
    run(focus, ids)
    assert torch.equal(outer[0], inner[0])
    first.__exit__(None, None, None)
    outer.clear()
    inner.clear()
    run(focus, ids)
    assert list(inner) == [0, 1]
    assert not outer
    second.__exit__(None, None, None)
    assert unobserved(focus)


def test_copies_of_an_observed_router_are_not_observed(focus):
    calls = []
    with observe_routing(focus, on_logits=lambda index, logits: calls.append(index)):
        router = focus.routers[0]
        for copied in (copy.deepcopy(router), pickle.loads(pickle.dumps(router))):
            copied.logits(torch.randn(1, 3, 64))
            assert not copied.observers
            assert torch.equal(copied.projection, router.projection)
    assert calls == []


def test_threads_open_and_close_their_own_blocks(focus):
    def work(seed):
        heard = []
        text = random_ids(20, seed=seed)
        for _ in range(5):
            with observe_routing(focus, on_embedding=lambda index, vectors: heard.append(index)):
                out = run(focus, text)
        return heard, out

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(8)))
    for seed, (heard, out) in enumerate(results):
        assert heard.count(0) >= 5
        assert heard.count(1) >= 5
        torch.testing.assert_close(out, run(focus, random_ids(20, seed=seed)), rtol=1e-4, atol=1e-4)
    assert unobserved(focus)


def test_attention_is_shown_layer_by_layer_and_is_full_meanwhile(focus, ids):
    seen = []
    with focus.full_attention():
        full = run(focus, ids)
    with observe_attention(focus, lambda layer, query, key, *_: seen.append((layer.index, query.shape, key.shape))):
        observed = run(focus, ids)
    torch.testing.assert_close(observed, full, rtol=1e-5, atol=1e-5)
    assert seen == [(index, (1, 4, 40, 16), (1, 2, 40, 16)) for index in (0, 1)]


def test_hidden_states_are_observed_in_the_named_layers_of_any_model(ids):
    model, observed = build_model(), {}
    with torch.no_grad(), observe_hidden_states(model, [1], observed.__setitem__):
        states = model(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
    assert list(observed) == [1]
    expected = model.model.layers[1].input_layernorm(states[1])
    torch.testing.assert_close(observed[1], expected)
