"""Missing links against brute force: every dropped pair of a tiny model added in turn."""

from __future__ import annotations

import math

import pytest
import torch

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import compose
from focus_runtime.composition.modes import AddedPairs
from focus_runtime.errors import Cancelled, ConfigError, InputError
from focus_runtime.explain.missing_links import attribute, missing_links
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.explain.dense import explicit_masks, head_allowed, next_loss

LENGTH = 10
BUDGET = (HeadException(layer=0, head=1, full=True), HeadException(layer=1, head=0, top_k=2))


def composed(family="Llama", **settings):
    model = build_model(family).double()
    values = {"window": 2, "num_sinks": 1, "budget": (), **settings}
    budget = values.pop("budget")
    return model, compose(model, build_centroids(model, **values), budget=budget, sliding_layers="focus")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "budget"), [("Llama", BUDGET), ("Gemma2", BUDGET), pytest.param("GPT2", (), marks=pytest.mark.long)]
)
def test_every_dropped_pair_is_found_with_its_first_order_effect(family, budget, fresh_seed):
    model, focus = composed(family, budget=budget)
    ids = random_ids(LENGTH + 1, seed=fresh_seed % 1000)[0].tolist()
    text, target = ids[:LENGTH], ids[LENGTH]
    result = attribute(focus, ids, LENGTH, candidates=100_000)
    with torch.no_grad():
        model(torch.tensor([text]), use_cache=False)
    masks = head_allowed(focus)
    focus.detach()
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    predicted = {(link.layer, link.head, link.query, link.key): link.predicted for link in result.links}
    dropped = [(layer, *place.tolist()) for layer, mask in masks.items() for place in (causal & ~mask).nonzero()]
    assert result.dropped_pairs == len(dropped)
    assert set(predicted) <= set(dropped)
    small = 1e-2  # norms compute in float32
    for place in dropped:
        losses = []
        for amount in (small, -small):
            with explicit_masks(model, masks, (*place, amount)):
                losses.append(next_loss(model, text, target))
        slope = (losses[0] - losses[1]) / (2 * small)
        expected = predicted.get(place)
        if expected is None:
            assert slope > -3e-5
        else:
            assert slope == pytest.approx(expected, rel=3e-3, abs=3e-5)


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Gemma3Text", "Mistral", "GPT2"])
def test_verified_links_are_what_an_explicit_mask_gives(family, fresh_seed):
    changes = {"sliding_window": 9} if family == "Mistral" else {}
    model = build_model(family, **changes).double()
    focus = compose(model, build_centroids(model, window=2, num_sinks=1), sliding_layers="focus")
    ids = random_ids(30, seed=fresh_seed % 1000)[0].tolist()
    token = 22
    result = missing_links(focus, ids, token, verify=4)
    verified = [link for link in result.links if link.nll is not None]
    assert verified
    for link in verified:
        pairs = {link.layer: torch.tensor([[link.head, link.query, link.key]])}
        with torch.no_grad(), focus.entered(AddedPairs(pairs, focus.focused_layers)):
            model(torch.tensor([ids[:token]]), use_cache=False)
        masks = head_allowed(focus, {link.layer: [(link.head, link.query, link.key)]})
        with focus.full_attention(), explicit_masks(model, masks):
            assert next_loss(model, ids[:token], ids[token]) == pytest.approx(link.nll, abs=2e-5)
    with focus.full_attention():
        assert next_loss(model, ids[:token], ids[token]) == pytest.approx(result.nll_full, abs=2e-5)


def test_the_best_links_come_first_and_all_of_them_are_added_at_once():
    model, focus = composed()
    ids = random_ids(40)[0].tolist()
    result = missing_links(focus, ids, 33, candidates=20, verify=5)
    assert len(result.links) == 20
    assert [link.nll is not None for link in result.links] == [True] * 5 + [False] * 15
    losses = [link.nll for link in result.links[:5]]
    assert losses == sorted(losses)
    pairs = {}
    for link in result.links[:5]:
        pairs.setdefault(link.layer, []).append([link.head, link.query, link.key])
    with focus.entered(AddedPairs({layer: torch.tensor(own) for layer, own in pairs.items()}, focus.focused_layers)):
        assert next_loss(model, ids[:33], ids[33]) == pytest.approx(result.nll_together, abs=2e-5)
    assert next_loss(model, ids[:33], ids[33]) == pytest.approx(result.nll_focus, abs=2e-5)


def test_a_mask_that_drops_nothing_has_no_missing_links():
    _, focus = composed(window=100)
    result = missing_links(focus, random_ids(20)[0].tolist(), 12)
    assert result.links == ()
    assert result.dropped_pairs == 0
    assert result.nll_together is None
    assert math.isclose(result.nll_full, result.nll_focus, abs_tol=1e-5)


@pytest.mark.parametrize("token", [0, 20, -1])
def test_a_token_without_a_prediction_is_refused(token):
    _, focus = composed()
    with pytest.raises(InputError, match="1 to 19"):
        missing_links(focus, random_ids(20)[0].tolist(), token)


def test_stopping_leaves_the_composition_as_it_was():
    _, focus = composed()
    ids = random_ids(30)[0].tolist()
    steps = []
    with pytest.raises(Cancelled):
        missing_links(focus, ids, 20, progress=lambda s, f: steps.append(s), cancelled=lambda: len(steps) >= 4)
    assert focus.modes == ()
    assert missing_links(focus, ids, 20, verify=1).links[0].nll is not None


@pytest.mark.parametrize(
    ("pairs", "message"), [({7: [[0, 5, 1]]}, "layer 7"), ({0: [[0, 5, 6]]}, "later"), ({0: [[0, -5, -6]]}, "later")]
)
def test_pairs_that_no_mask_has_are_refused(pairs, message):
    _, focus = composed()
    tensors = {layer: torch.tensor(own) for layer, own in pairs.items()}
    with (
        pytest.raises((InputError, ConfigError), match=message),
        focus.entered(AddedPairs(tensors, focus.focused_layers)),
    ):
        pass
