"""A model on several devices gives what it gives on one. Without a GPU the second "device" is weights on disk."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import TextOptions
from focus_runtime.errors import ModelError
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.measure.loss import evaluate_focus, evaluate_full
from focus_runtime.models.device_map import (
    compute_devices,
    device_names,
    execution_device,
    input_device,
    split_model,
    stored_parameters,
)
from focus_runtime.models.loading import fingerprint, weights_sha256
from focus_runtime.models.structure import attention_modules
from focus_runtime.run.text import analyze
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids

TEXT = "The cat sat on the mat. " * 8


def _on_disk(model, *names):
    """A device map of single modules, with the named ones on disk."""
    parts = ["model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"]
    parts += [f"model.layers.{index}" for index in range(len(model.model.layers))]
    return {part: "disk" if part in names else "cpu" for part in parts}


def _split(folder, *names, **changes):
    model = build_model(**changes)
    split_model(model, device_map=_on_disk(model, *names), offload_folder=str(folder))
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (("model.layers.1",), {}),
        (("model.embed_tokens", "model.layers.0", "lm_head"), {}),
        (("model.embed_tokens", "lm_head"), {"tie_word_embeddings": True}),
    ],
)
def test_a_split_model_computes_what_the_whole_one_does(tmp_path, names, changes):
    whole, model = build_model(**changes), _split(tmp_path, *names, **changes)
    assert any(parameter.device.type == "meta" for parameter in model.parameters())
    assert input_device(model) == torch.device("cpu")
    assert fingerprint(model) == fingerprint(whole)
    assert weights_sha256(model) == weights_sha256(whole)
    ids = random_ids(60, batch=2)
    assert evaluate_full(model, ids) == evaluate_full(whole, ids)
    qualities = []
    for network in (whole, model):
        centroids = calibrate_potentials(network, build_centroids(network, potentials=False), ids)
        qualities.append(evaluate_focus(compose(network, centroids), ids))
    assert qualities[0] == qualities[1]


def test_a_text_is_analysed_on_a_split_model(tmp_path):
    whole, model = build_model(vocab_size=512), _split(tmp_path, "model.embed_tokens", "model.layers.1", vocab_size=512)
    traces = [
        analyze(network, build_tokenizer(), TEXT, build_centroids(network), TextOptions(repeats=1, attention_mass=True))
        for network in (whole, model)
    ]
    assert traces[1].info["device"] == device_names(model) == "cpu"
    for name in ("full", "focus"):
        assert (traces[0].nll[name] == traces[1].nll[name]).all()
    for one, other in zip(traces[0].layers, traces[1].layers, strict=True):
        assert (one.membership == other.membership).all()
        assert one.attention_mass_retained == other.attention_mass_retained


def test_a_split_model_generates_with_a_cache(tmp_path):
    ids = random_ids(40)
    texts = []
    for model in (build_model(), _split(tmp_path, "model.layers.0")):
        compose(model, build_centroids(model))
        texts.append(model.generate(ids, max_new_tokens=12, do_sample=False))
    assert (texts[0] == texts[1]).all()


def test_a_router_goes_to_the_device_of_its_layer(monkeypatch):
    """The map names a device that this machine may lack, so nothing is run."""
    model = build_model()
    for index, module in attention_modules(model).items():
        module._hf_hook = type("Hook", (), {"execution_device": "meta" if index else "cpu"})()
    model.hf_device_map = {}
    centroids = build_centroids(model)
    focus = compose(model, centroids, check=False)
    assert [router.projection.device.type for router in focus.routers.values()] == ["cpu", "meta"]
    assert execution_device(attention_modules(model)[1]).type == "meta"
    assert device_names(model) == "cpu + meta"
    assert [device.type for device in compute_devices(model)] == ["cpu", "meta"]


def test_every_parameter_is_listed_once(tmp_path):
    tied = _split(tmp_path, "lm_head", tie_word_embeddings=True)
    names = [name for name, _ in stored_parameters(tied)]
    assert names == [name for name, _ in build_model(tie_word_embeddings=True).named_parameters()]
    assert not any(values.device.type == "meta" for _, values in stored_parameters(tied))


def test_too_little_memory_is_one_clear_message(monkeypatch):
    monkeypatch.setattr("accelerate.utils.get_max_memory", lambda: {"cpu": 10_000})
    with pytest.raises(ModelError, match="does not fit into this machine's GPUs and main memory together"):
        split_model(build_model())
