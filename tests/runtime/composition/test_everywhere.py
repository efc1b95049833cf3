"""Tokens that belong to all groups: every head executes them, whatever its k, in one pass and step by step."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import compose
from focus_runtime.composition.observe import replace_assignment
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.explain.dense import explicit_masks, head_allowed

CHOSEN = (7, 19)
BUDGETS = {
    "one setting": (),
    "budget": (HeadException(layer=0, head=1, full=True), HeadException(layer=1, head=0, top_k=2)),
}


def chosen_tokens(index, router, hidden, padding):
    own = router.own_assignment(hidden, padding=padding)
    tokens = torch.zeros(own.membership.shape, dtype=torch.bool)
    tokens[:, [pos for pos in CHOSEN if pos < tokens.shape[1]]] = True
    return own.in_all_groups(tokens)


@pytest.mark.parametrize("backend", ["auto", "masked", "reference", "fused", "decomposed"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_all_heads_see_them(backend, budget, fresh_seed):
    model = build_model()
    focus = compose(model, build_centroids(model, window=3, num_sinks=1), budget=BUDGETS[budget], backend=backend)
    ids = random_ids(40, seed=fresh_seed % 1000)
    with torch.no_grad(), replace_assignment(focus, chosen_tokens):
        sparse = model(ids, use_cache=False).logits
    masks = head_allowed(focus)
    assert all(mask[:, pos:, pos].all() and mask[:, pos, :pos].all() for mask in masks.values() for pos in CHOSEN)
    assert not all(mask[:, -1].all() for mask in masks.values())
    with focus.full_attention(), explicit_masks(model, masks), torch.no_grad():
        expected = model(ids, use_cache=False).logits
    torch.testing.assert_close(sparse, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("backend", ["auto", "masked", "reference", "fused", "decomposed"])
def test_heads_without_groups_see_none_of_them(backend, fresh_seed):
    model, budget = (
        build_model(),
        (HeadException(layer=0, query_head=1, top_k=0), HeadException(layer=1, head=0, top_k=2)),
    )
    focus = compose(model, build_centroids(model, window=3, num_sinks=1), budget=budget, backend=backend)
    ids = random_ids(40, seed=fresh_seed % 1000)
    with torch.no_grad(), replace_assignment(focus, chosen_tokens):
        sparse = model(ids, use_cache=False).logits
    masks = head_allowed(focus)
    distance = torch.arange(40)[:, None] - torch.arange(40)
    assert torch.equal(masks[0][1], (distance >= 0) & ((distance <= 3) | (torch.arange(40) == 0)))
    assert all(masks[0][head][pos:, pos].all() for head in (0, 2, 3) for pos in CHOSEN)
    with focus.full_attention(), explicit_masks(model, masks), torch.no_grad():
        expected = model(ids, use_cache=False).logits
    torch.testing.assert_close(sparse, expected, rtol=2e-4, atol=2e-4)


def test_nothing_changes_without_any():
    model = build_model()
    focus = compose(model, build_centroids(model, window=3, num_sinks=1), budget=BUDGETS["budget"])
    ids = random_ids(30)
    with torch.no_grad():
        expected = model(ids, use_cache=False).logits
        with replace_assignment(
            focus,
            lambda index, router, hidden, padding: router.own_assignment(hidden).in_all_groups(
                torch.zeros(hidden.shape[:2], dtype=torch.bool)
            ),
        ):
            torch.testing.assert_close(model(ids, use_cache=False).logits, expected, rtol=1e-5, atol=1e-5)
