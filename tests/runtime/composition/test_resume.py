"""Passes that start at a layer give what the whole pass gives, bit for bit."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.composition.observe import recorded_outputs, resumed_at
from focus_runtime.models.structure import decoder_layers
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.families import logits


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
