"""A model on several devices gives what it gives on one. Without a GPU the second "device" is weights on disk."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import TextOptions
from focus_runtime.errors import DeviceError, ModelError
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.measure.perplexity import score
from focus_runtime.models.devices import (
    Placement,
    compute_devices,
    device_names,
    devices,
    execution_device,
    input_device,
    native_dtype,
    place,
    processor_name,
    split_model,
    stored_parameters,
)
from focus_runtime.models.loading import fingerprint, weights_sha256
from focus_runtime.models.structure import attention_modules
from focus_runtime.run.text import analyze
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch):
    """A new and an old graphics card: the second has no bfloat16."""
    names = ["NVIDIA H100 80GB HBM3", "Tesla T4"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(name=names[index], total_memory=16 << 30)
    )
    monkeypatch.setattr("focus_runtime.models.devices.native_dtype", {"cuda:0": "bfloat16", "cuda:1": "float32"}.get)


def test_the_cpu_is_always_there(no_gpu):
    [cpu] = devices()
    assert cpu.name == "cpu"
    assert cpu.label == processor_name() != ""
    assert cpu.memory_bytes is None or cpu.memory_bytes > 1 << 28
    assert place() == Placement("cpu", "float32")
    assert place(dtype="bfloat16") == Placement("cpu", "bfloat16")


def test_auto_takes_the_first_gpu_in_bfloat16(two_gpus):
    assert place() == Placement("cuda:0", "bfloat16")
    assert place("cuda") == Placement("cuda:0", "bfloat16")
    assert place("cuda:1") == Placement("cuda:1", "float32")
    assert place("cpu") == Placement("cpu", "float32")
    assert place("split") == Placement("split", "bfloat16")
    _, new, old, both = devices()
    assert [new.label, old.label] == ["NVIDIA H100 80GB HBM3", "Tesla T4"]
    assert (both.name, both.label, both.memory_bytes) == ("split", "2 GPUs and main memory", 32 << 30)
    with pytest.raises(DeviceError, match=r"cuda:7 is not available: this machine has 2 CUDA devices, counted from 0"):
        place("cuda:7")
    message = r"cuda:1 \(Tesla T4\) does not compute in bfloat16; expected float32 or float16"
    with pytest.raises(DeviceError, match=message):
        place("cuda:1", "bfloat16")


@pytest.mark.parametrize(
    ("device", "dtype", "message"),
    [
        ("cuda", "auto", r"device cuda is not available: .*; expected auto or cpu; leave the device to auto"),
        ("split", "auto", r"device split is not available: .*; expected auto or cpu"),
        ("mps", "auto", r"device mps is not available: this machine has no mps"),
        ("gpu", "auto", r"device 'gpu' is unknown; expected auto, cpu, cuda, cuda:N, mps or split"),
        ("cuda:x", "auto", r"device 'cuda:x' is unknown"),
        ("cpu", "float16", r"cpu \(.*\) does not compute in float16; expected float32 or bfloat16"),
        ("cpu", "int8", r"dtype 'int8' is unknown; expected auto or float32 or bfloat16 or float16"),
    ],
)
def test_what_the_machine_lacks_is_named(no_gpu, device, dtype, message):
    with pytest.raises(DeviceError, match=message):
        place(device, dtype)


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
    assert score(model, ids).nll.tolist() == score(whole, ids).nll.tolist()
    qualities = []
    for network in (whole, model):
        centroids = calibrate_potentials(network, build_centroids(network, potentials=False), ids)
        qualities.append(score(compose(network, centroids), ids).summary())
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


@pytest.mark.parametrize(("native", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_the_device_decides_what_is_native(native, expected, monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: native)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert native_dtype() == native_dtype(torch.device("cpu")) == native_dtype("cuda:1") == expected
    assert native_dtype("mps") == native_dtype("meta") == "float32"
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert native_dtype("cpu") == "float32"
