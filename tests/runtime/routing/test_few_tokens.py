"""The compiled causal rule for a few tokens against the definition in torch."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.config import FocusConfig
from focus_runtime.native import library
from focus_runtime.routing import router as router_module
from focus_runtime.routing.router import MOST_TOKENS, CentroidRouter, few_tokens_fit, route_few_tokens, top_k_membership

pytestmark = pytest.mark.skipif(library()[0] is None, reason="no C++ compiler")


def exact(hidden, weights, potential, top_k):
    probabilities = torch.softmax(hidden.double() @ weights.double() + potential.double(), dim=-1)
    return probabilities, top_k_membership(probabilities, top_k)


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


def test_of_equals_the_lower_group_is_taken():
    _, membership = route_few_tokens(torch.zeros(1, 2, 5), torch.zeros(5, 4), torch.tensor([0.0, 1.0, 1.0, 0.0]), 3)
    assert membership.tolist() == [[0b0111, 0b0111]]


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
    assert few.uniform
    torch.testing.assert_close(few.probabilities, many.probabilities[:, :MOST_TOKENS], rtol=1e-4, atol=1e-6)
    assert torch.equal(few.membership, many.membership[:, :MOST_TOKENS])


def test_it_does_not_fit_elsewhere():
    assert not few_tokens_fit(torch.zeros(1, 1, 8, dtype=torch.float64))
    assert not few_tokens_fit(torch.empty(1, 1, 8, device="meta"))
    with torch.no_grad():
        assert few_tokens_fit(torch.zeros(1, 1, 8))
