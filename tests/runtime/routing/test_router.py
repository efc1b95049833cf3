"""Routing: Sinkhorn potentials against an iterated plan, membership, causality of the assignment."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.config import FocusConfig
from focus_runtime.native import library
from focus_runtime.routing import router as router_module
from focus_runtime.routing.router import (
    MOST_TOKENS,
    CentroidRouter,
    route_few_tokens,
    sinkhorn_potential,
    top_k_membership,
)


def iterated_plan(logits, iterations):
    """The paper's recipe, literally, in float64: exp, then N times divide by column sums and by row sums."""
    plan = torch.exp(logits.double())
    for _ in range(iterations):
        plan = plan / plan.sum(dim=1, keepdim=True)
        plan = plan / plan.sum(dim=2, keepdim=True)
    return plan


def router(hidden=16, **settings):
    layer = CentroidRouter(hidden, FocusConfig(**{"num_groups": 4, "routing_dim": 8, "top_k": 1, **settings}))
    layer.reset(torch.Generator().manual_seed(0))
    return layer


@pytest.mark.parametrize("iterations", [1, 2, 3, 10, 50])
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_potential_equals_the_iterated_plan(iterations, groups, fresh_seed):
    logits = 3 * torch.randn(2, 37, groups, dtype=torch.float64)
    potential = sinkhorn_potential(logits, iterations)
    plan = torch.softmax(logits + potential[:, None], dim=-1)
    torch.testing.assert_close(plan, iterated_plan(logits, iterations), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(potential.mean(dim=-1), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[[1e4, 0.0, -1e4]] * 5])
    assert torch.isfinite(sinkhorn_potential(logits, 20)).all()


def test_padding_does_not_count(fresh_seed):
    logits = torch.randn(2, 20, 4, dtype=torch.float64)
    padding = torch.ones(2, 20, dtype=torch.bool)
    padding[0, 13:] = False
    padding[1, :5] = False
    logits[~padding] = 100 * torch.randn(int((~padding).sum()), 4, dtype=torch.float64)
    potential = sinkhorn_potential(logits, 7, padding)
    for row, kept in ((0, slice(0, 13)), (1, slice(5, 20))):
        plan = torch.softmax(logits[row, kept] + potential[row], dim=-1)
        torch.testing.assert_close(plan, iterated_plan(logits[row : row + 1, kept], 7)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("row", "top_k", "groups"),
    [
        ([0.1, 0.7, 0.2], 1, {1}),
        ([0.1, 0.7, 0.2], 2, {1, 2}),
        ([0.25, 0.25, 0.25, 0.25], 1, {0}),
        ([0.25, 0.25, 0.25, 0.25], 3, {0, 1, 2}),
        ([0.1, 0.4, 0.1, 0.4], 1, {1}),
        ([0.2, 0.1, 0.5, 0.2], 2, {0, 2}),
        ([1.0], 1, {0}),
    ],
)
def test_membership_bits_and_ties(row, top_k, groups):
    assert top_k_membership(torch.tensor([row]), top_k).tolist() == [sum(1 << g for g in groups)]


@pytest.mark.parametrize("groups", [17, 40, 63])
def test_ties_among_many_groups(groups):
    """Short rows are sorted stably by accident; long ones only with `stable=True`."""
    probabilities = torch.full((50, groups), 1 / groups)
    assert top_k_membership(probabilities, 3).tolist() == [0b111] * 50
    probabilities[:, 5] = 0.0
    assert top_k_membership(probabilities, 6).tolist() == [0b1011111] * 50
    assert top_k_membership(probabilities, groups).tolist() == [(1 << groups) - 1] * 50


def test_logits_are_scores_over_temperature(fresh_seed):
    layer, hidden = router(temperature=0.2), torch.randn(1, 3, 16)
    expected = torch.empty(3, 4)
    for t in range(3):
        for g in range(4):
            vector = sum(hidden[0, t, i] * layer.projection[i] for i in range(16))
            expected[t, g] = torch.dot(vector, layer.centroids[g]) / 0.2
    torch.testing.assert_close(layer.logits(hidden)[0].detach(), expected.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cut", [1, 7, 29])
def test_causal_groups_of_a_prefix_never_depend_on_later_tokens(cut, fresh_seed):
    layer, hidden = router(top_k=2), torch.randn(1, 30, 16)
    layer.potential.copy_(torch.randn(4))
    changed = hidden.clone()
    changed[:, cut:] = 50 * torch.randn(1, 30 - cut, 16)
    whole, prefix, other = (layer.assign(x, assignment="causal") for x in (hidden, hidden[:, :cut], changed))
    assert torch.equal(whole.membership[:, :cut], prefix.membership)
    assert torch.equal(whole.membership[:, :cut], other.membership[:, :cut])


def test_sinkhorn_groups_do_depend_on_later_tokens():
    """The leak that causal assignment removes; if this fails, the test above proves nothing."""
    layer, hidden = router(), torch.randn(1, 30, 16, generator=torch.Generator().manual_seed(1))
    changed = hidden.clone()
    changed[:, 15:] = 5 * hidden[:, :15]
    first, second = (layer.assign(x, assignment="sinkhorn").probabilities[:, :15] for x in (hidden, changed))
    assert not torch.allclose(first, second)


def test_copied_potential_makes_causal_equal_sinkhorn(fresh_seed):
    layer, hidden = router(top_k=2), torch.randn(1, 30, 16)
    balanced = layer.assign(hidden, assignment="sinkhorn")
    layer.potential.copy_(balanced.potential[0].detach())
    causal = layer.assign(hidden, assignment="causal")
    torch.testing.assert_close(causal.probabilities, balanced.probabilities)
    assert torch.equal(causal.membership, balanced.membership)


def test_softmax_normalisation_is_a_plain_softmax(fresh_seed):
    layer, hidden = router(normalisation="softmax"), torch.randn(2, 12, 16)
    result = layer.assign(hidden, assignment="sinkhorn")
    torch.testing.assert_close(result.probabilities, torch.softmax(layer.logits(hidden), dim=-1))
    assert result.potential.shape == (2, 4)


@torch.no_grad()
def test_scores_without_gradients_are_the_same_and_follow_every_change(fresh_seed):
    layer, hidden = router(), torch.randn(2, 9, 16)
    other = router()

    def expected():
        return hidden @ layer.projection @ layer.centroids.T / layer.config.temperature

    def check():
        torch.testing.assert_close(layer.logits(hidden), expected(), rtol=1e-5, atol=1e-4)

    check()
    layer.projection.mul_(2)
    check()
    layer.centroids.add_(1)
    check()
    layer.config = layer.config.replace(temperature=0.7)
    check()
    layer.load_state_dict(other.state_dict())
    check()
    layer.double()
    hidden = hidden.double()
    check()
    with torch.enable_grad():
        assert layer.logits(hidden).requires_grad


needs_compiler = pytest.mark.skipif(library()[0] is None, reason="no C++ compiler")


def exact(hidden, weights, potential, top_k):
    probabilities = torch.softmax(hidden.double() @ weights.double() + potential.double(), dim=-1)
    return probabilities, top_k_membership(probabilities, top_k)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("groups", "top_k"), [(1, 1), (3, 2), (4, 4), (8, 1), (8, 3), (16, 2), (63, 5)])
@pytest.mark.parametrize(("batch", "length", "width"), [(1, 1, 576), (2, 3, 7), (16, 1, 33), (1, 16, 1)])
def test_it_equals_the_definition(dtype, groups, top_k, batch, length, width, fresh_seed):
    hidden = torch.randn(batch, length, width).to(dtype)
    weights, potential = torch.randn(width, groups), torch.randn(groups)
    probabilities, membership = route_few_tokens(hidden, weights, potential, top_k)
    expected, groups_of = exact(hidden, weights, potential, top_k)
    torch.testing.assert_close(probabilities.double(), expected, rtol=2e-4, atol=1e-6)
    ordered = expected.sort(dim=-1, descending=True).values
    clear = torch.ones(batch, length, dtype=torch.bool)
    if top_k < groups:
        clear = ordered[..., top_k - 1] > ordered[..., top_k] * 1.001  # a near tie may fall either way
    assert torch.equal(membership[clear], groups_of[clear])


@needs_compiler
def test_the_router_uses_it_for_few_tokens_alone(monkeypatch, fresh_seed):
    router = CentroidRouter(24, FocusConfig(num_groups=6, top_k=2, assignment="causal"))
    router.reset(torch.Generator().manual_seed(fresh_seed))
    seen = []
    call = router_module.route_few_tokens

    def noting(hidden, *others):
        seen.append(hidden.shape[1])
        return call(hidden, *others)

    monkeypatch.setattr(router_module, "route_few_tokens", noting)
    hidden = torch.randn(1, MOST_TOKENS + 1, 24)
    with torch.no_grad():
        many = router.assign(hidden)
        few = router.assign(hidden[:, :MOST_TOKENS])
        router.assign(hidden[:, :4], assignment="sinkhorn")
        router.assign(hidden[:, :8:2])  # its tokens do not lie together
    router.assign(hidden[:, :4])  # gradients
    assert seen == [MOST_TOKENS]
    assert few.exact
    torch.testing.assert_close(few.probabilities, many.probabilities[:, :MOST_TOKENS], rtol=1e-4, atol=1e-6)
    assert torch.equal(few.membership, many.membership[:, :MOST_TOKENS])
