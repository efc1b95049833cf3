"""What a token attends to, against the attention weights that transformers' own eager attention returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import compose
from focus_runtime.errors import Cancelled, InputError
from focus_runtime.explain.token_attention import token_attention
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.explain.dense import head_allowed

LENGTH = 30
BUDGET = (HeadException(layer=0, head=1, full=True), HeadException(layer=1, head=0, top_k=2))


def weights_under(model, ids):
    """Layer -> (H, T, T) weights of eager attention."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        result = model(torch.tensor([ids]), output_attentions=True, use_cache=False)
    model.set_attn_implementation(before)
    return [one[0] for one in result.attentions]


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Mistral", "GPT2"])
def test_full_attention_is_that_of_the_model_itself(family, fresh_seed):
    changes = {"sliding_window": 9} if family == "Mistral" else {}
    model = build_model(family, **changes)
    ids = random_ids(LENGTH, seed=fresh_seed % 1000)[0].tolist()
    expected = weights_under(model, ids)
    focus = compose(model, build_centroids(model, window=2, num_sinks=1), sliding_layers="focus")
    token = 21
    result = token_attention(focus, ids, token, strongest=LENGTH)
    assert [one.layer for one in result] == list(focus.focused_layers)
    focus.detach()
    for one in result:
        own = expected[one.layer][:, token]
        for row, weights in enumerate([own.mean(dim=0), *own]):
            found = dict(zip(one.keys[row].tolist(), one.full[row].tolist(), strict=True))
            found.pop(-1, None)
            for key, weight in enumerate(weights.tolist()):
                assert found.get(key, 0.0) == pytest.approx(weight, abs=2e-5)


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Mistral"])
@pytest.mark.parametrize("budget", [(), BUDGET], ids=["one setting", "budget"])
def test_attention_under_focus_is_that_of_the_explicit_mask(family, budget, fresh_seed):
    changes = {"sliding_window": 9} if family == "Mistral" else {}
    model = build_model(family, **changes)
    ids = random_ids(LENGTH, seed=fresh_seed % 1000)[0].tolist()
    focus = compose(model, build_centroids(model, window=2, num_sinks=1), budget=budget, sliding_layers="focus")
    token = 24
    result = token_attention(focus, ids, token, strongest=LENGTH)
    with torch.no_grad():
        model(torch.tensor([ids]), use_cache=False)
    masks = head_allowed(focus)
    seen = weights_under_masks(focus, model, masks, ids)
    full = token_attention(focus, ids, token, strongest=LENGTH)
    focus.detach()
    for one, again in zip(result, full, strict=True):
        assert np.array_equal(one.keys, again.keys)
        mask = masks[one.layer][:, token]
        own = seen[one.layer][:, token]
        for row, weights in enumerate([own.mean(dim=0), *own]):
            found = {key: place for place, key in enumerate(one.keys[row].tolist()) if key >= 0}
            for key, weight in enumerate(weights.tolist()):
                value = one.focus[row, found[key]] if key in found else 0.0
                assert value == pytest.approx(weight, abs=2e-5)
        for head, kept in enumerate(mask):
            for key, share in zip(one.keys[head + 1].tolist(), one.kept[head + 1].tolist(), strict=True):
                assert key < 0 or share == float(kept[key])
            expected = sum(
                value
                for key, value in zip(one.keys[head + 1].tolist(), one.full[head + 1].tolist(), strict=True)
                if key >= 0 and kept[key]
            )
            assert one.full_kept[head + 1] == pytest.approx(expected, abs=1e-5)
        assert one.full_kept[0] == pytest.approx(one.full_kept[1:].mean(), abs=1e-5)
        assert one.kept[0].max() <= 1


def weights_under_masks(focus, model, masks, ids):
    """Layer -> (H, T, T) weights of a pass under explicit masks, from its queries and keys."""
    from focus_runtime.composition.observe import observe_focus

    found = {}

    def on_focus(layer, call, out):
        query, key = call.query[0].float(), call.key[0].float()
        key = key.repeat_interleave(query.shape[0] // key.shape[0], dim=0)
        scores = call.scoring.capped(query @ key.transpose(-1, -2) * call.scoring.scale)
        causal = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
        found[layer.index] = scores.masked_fill(~(masks[layer.index] & causal), float("-inf")).softmax(dim=-1)

    with torch.no_grad(), observe_focus(focus, on_focus):
        model(torch.tensor([ids]), use_cache=False)
    return found


def test_a_few_keys_are_the_strongest_of_either_kind():
    model = build_model()
    ids = random_ids(LENGTH)[0].tolist()
    with compose(model, build_centroids(model, window=2, num_sinks=1)) as focus:
        every = token_attention(focus, ids, 20, strongest=LENGTH)
        few = token_attention(focus, ids, 20, strongest=3)
    for one, all_of in zip(few, every, strict=True):
        assert one.keys.shape == (1 + model.config.num_attention_heads, 3)
        assert np.array_equal(one.keys, all_of.keys[:, :3])
        most = np.maximum(one.full, one.focus)
        assert (np.diff(most, axis=1) <= 0).all()
        assert np.array_equal(one.full_kept, all_of.full_kept)


def test_later_tokens_are_read_only_where_groups_depend_on_them():
    model = build_model()
    ids = random_ids(LENGTH)[0].tolist()
    other = [*ids[:21], *random_ids(LENGTH - 21, seed=5)[0].tolist()]
    centroids = build_centroids(model, window=2, num_sinks=1)
    with compose(model, centroids) as focus:
        first, second = (token_attention(focus, one, 20) for one in (ids, other))
        assert all(np.array_equal(a.focus, b.focus) for a, b in zip(first, second, strict=True))
    with compose(model, centroids, assignment="sinkhorn") as focus:
        first, second = (token_attention(focus, one, 20) for one in (ids, other))
        assert any(not np.array_equal(a.kept, b.kept) for a, b in zip(first, second, strict=True))
        for a, b in zip(first, second, strict=True):  # full attention never looks ahead
            places = dict(zip(b.keys[1].tolist(), b.full[1].tolist(), strict=True))
            common = [(value, places[key]) for key, value in zip(a.keys[1], a.full[1], strict=True) if key in places]
            assert common
            assert all(value == pytest.approx(other, abs=1e-5) for value, other in common)


def test_progress_counts_layers_of_both_passes_and_may_stop():
    model = build_model()
    ids = random_ids(8)[0].tolist()
    steps = []
    with compose(model, build_centroids(model, window=2, num_sinks=1)) as focus:
        token_attention(focus, ids, 5, progress=lambda done, total: steps.append((done, total)))
        assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]

        def stop(done, total):
            raise Cancelled("stopped")

        with pytest.raises(Cancelled):
            token_attention(focus, ids, 5, progress=stop)
        for one in token_attention(focus, ids, 0):  # nothing is left behind; the first token sees itself
            assert (one.keys == 0).all()
            assert np.allclose([one.full, one.focus], 1)
        for token in (-1, 8):
            with pytest.raises(InputError, match=f"no token {token}"):
                token_attention(focus, ids, token)
