"""A changed run, read again from its first changed layer: the same as the whole run with the changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import compose
from focus_runtime.composition.changes import read_changes
from focus_runtime.errors import InputError
from focus_runtime.explain.what_if import keep_pass, pairs_changed, what_if
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.explain.dense import explicit_masks, head_allowed

T = 60
BUDGET = (HeadException(layer=1, head=0, top_k=2), HeadException(layer=2, head=1, full=True))
CHANGES = [["move:2:20:C"], ["see:1:50:7"], ["silence:0:A"], ["full:2"], ["k:1=3", "move:2:4:A"], ["see:all:40:9"]]


def composed(family="Llama", **settings):
    model = build_model(family, num_hidden_layers=4)
    centroids = build_centroids(model, window=3)
    centroids.config = centroids.config.replace(text_sinks=0.2, text_sinks_from=1)
    return model, compose(model, centroids, sliding_layers="focus", budget=BUDGET, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "texts"), [*(("Llama", texts) for texts in CHANGES), ("Gemma2", CHANGES[-2]), ("Mistral", CHANGES[-1])]
)
def test_it_is_what_dense_attention_under_the_changed_masks_gives(family, texts, fresh_seed):
    model, focus = composed(family)
    ids = random_ids(T, seed=fresh_seed % 1000)
    kept = keep_pass(focus, ids[0].tolist())
    made = what_if(focus, kept, read_changes(texts))
    with torch.no_grad(), focus.with_changes(read_changes(texts), T):
        model(ids, use_cache=False)
        masks = head_allowed(focus)
        groups = {layer: one.probabilities[0].argmax(-1).numpy() for layer, one in focus.assignments().items()}
    with focus.full_attention(), explicit_masks(model, masks), torch.no_grad():
        logits = model(ids, use_cache=False).logits[0, :-1].double().log_softmax(-1)
    expected = -logits.gather(-1, ids[0, 1:, None])[:, 0]
    np.testing.assert_allclose(made.predictions.nll, expected.numpy(), rtol=1e-3, atol=1e-3)
    for layer, mask in masks.items():
        np.testing.assert_array_equal(made.top_groups[layer], groups[layer])
        assert made.retained_pairs(layer) == pytest.approx(
            float(mask.sum(dim=(1, 2)).double().mean()) / (T * (T + 1) / 2)
        )


def test_pairs_gained_and_lost_are_those_of_the_masks(fresh_seed):
    model, focus = composed()
    ids = random_ids(T, seed=fresh_seed % 1000)
    kept = keep_pass(focus, ids[0].tolist())
    before = head_allowed(focus)
    changes = read_changes(["move:1:20:C", "full:1:1", "window:2:0=9"])
    made = what_if(focus, kept, changes)
    with torch.no_grad(), focus.with_changes(changes, T):
        model(ids, use_cache=False)
        after = head_allowed(focus)
    for layer in before:
        size, counts = pairs_changed(kept.result.masks[layer], made.masks[layer])
        old, new = before[layer].double(), after[layer].double()
        assert size == 1
        np.testing.assert_allclose(counts[0], ((new - old) > 0).double().mean(dim=0).numpy())
        np.testing.assert_allclose(counts[1], ((old - new) > 0).double().mean(dim=0).numpy())


def test_layers_before_the_first_change_are_not_computed(fresh_seed):
    model, focus = composed()
    kept = keep_pass(focus, random_ids(T, seed=fresh_seed % 1000)[0].tolist())
    ran = []
    hooks = [
        layer.mlp.register_forward_hook(lambda *_, number=number: ran.append(number))
        for number, layer in enumerate(model.model.layers)
    ]
    what_if(focus, kept, read_changes(["move:2:20:C"]))
    for hook in hooks:
        hook.remove()
    assert ran == [2, 3]


def test_without_changes_nothing_is_computed():
    _, focus = composed()
    kept = keep_pass(focus, random_ids(T)[0].tolist())
    assert what_if(focus, kept, ()) is kept.result


def test_another_composition_of_the_same_centroids_may_continue(fresh_seed):
    model, focus = composed()
    kept = keep_pass(focus, random_ids(T, seed=fresh_seed % 1000)[0].tolist())
    first = what_if(focus, kept, read_changes(["silence:1:A"]))
    focus.detach()
    centroids = build_centroids(model, window=3)
    centroids.config = centroids.config.replace(text_sinks=0.2, text_sinks_from=1)
    again = compose(model, centroids, budget=BUDGET)
    second = what_if(again, kept, read_changes(["silence:1:A"]))
    np.testing.assert_allclose(second.predictions.nll, first.predictions.nll, rtol=1e-5)


def test_one_token_is_too_short():
    _, focus = composed()
    with pytest.raises(InputError, match="no token with a prediction"):
        keep_pass(focus, [5])
