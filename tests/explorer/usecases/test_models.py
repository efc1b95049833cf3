"""The lease of the loaded model: one model is kept, and one thread has it at a time."""

from __future__ import annotations

import threading

import pytest

from focus_explorer.errors import ModelError
from focus_explorer.usecases.models import LoadedModel, ModelStore, device_choices
from focus_runtime.errors import DeviceError
from focus_runtime.models.devices import Device, Placement
from tests.helpers import build_model, build_tokenizer


@pytest.fixture
def loads():
    """Names loaded so far."""
    return []


@pytest.fixture
def store(loads):
    def load(name, placement, progress):
        loads.append(name if placement.dtype == "float32" else f"{name} in {placement.dtype}")
        if name == "missing":
            raise ModelError("there is no such model")
        return LoadedModel(name, build_model(), object(), f"fingerprint of {name}")

    return ModelStore(load, device="cpu")


def test_the_model_loaded_last_is_kept_and_no_other(store, loads):
    with store.lease("a") as first:
        pass
    with store.lease("a") as again:
        assert again is first
    with store.lease("b"), store.lease("a") as reloaded:
        assert reloaded is not first
    assert loads == ["a", "b", "a"]


def test_another_precision_is_another_model(store, loads):
    with store.lease("a") as first, store.lease("a", dtype="bfloat16") as other:
        assert other is not first
    with store.lease("a", device="cpu", dtype="bfloat16") as again:
        assert again is other
    assert loads == ["a", "a in bfloat16"]


def test_a_store_may_prefer_a_precision(loads):
    def load(name, placement, progress):
        loads.append(placement)
        return LoadedModel(name, build_model(), object(), "")

    with ModelStore(load, device="cpu", dtype="bfloat16").lease("a"):
        pass
    assert loads == [Placement("cpu", "bfloat16")]


def test_a_device_that_is_not_here_loads_nothing(store, loads):
    with pytest.raises(DeviceError, match=r"device cuda:99 is not available"), store.lease("a", device="cuda:99"):
        pass
    assert loads == []


def test_devices_are_offered_by_name_and_memory():
    labels = device_choices()
    assert labels[0][1] == "auto"
    assert any(value == "cpu" and label.startswith("cpu (") and label.endswith(" GB)") for label, value in labels)


def test_a_model_that_cannot_be_loaded_leaves_the_store_free(store, loads):
    with pytest.raises(ModelError), store.lease("missing"):
        pass
    taken = []

    def other_thread():
        with store.lease("a") as loaded:
            taken.append(loaded.name)

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join(5)
    assert taken == ["a"]


def test_a_second_thread_waits_until_the_lease_ends(store):
    order, started = [], threading.Event()

    def second():
        started.set()
        with store.lease("a"):
            order.append("second")

    thread = threading.Thread(target=second)
    with store.lease("a"), store.lease("a"):  # the same thread may take it again
        thread.start()
        assert started.wait(5)
        thread.join(0.2)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_a_training_is_offered_single_devices_and_no_precision(monkeypatch):
    listed = [Device("cpu", "A CPU", None, ("float32",)), Device("cuda:0", "A GPU", 1 << 34, ("bfloat16",))]
    listed.append(Device("split", "1 GPU and main memory", 1 << 34, ("bfloat16",)))
    monkeypatch.setattr("focus_runtime.models.devices.devices", lambda: listed)
    monkeypatch.setattr("focus_runtime.models.devices.place", lambda: Placement("cuda:0", "bfloat16"))
    assert device_choices() == [
        ("auto (cuda:0, bfloat16)", "auto"),
        ("cpu (A CPU)", "cpu"),
        ("cuda:0 (A GPU, 16 GB)", "cuda:0"),
        ("split (1 GPU and main memory, 16 GB)", "split"),
    ]
    assert device_choices(training=True) == [
        ("auto (cuda:0)", "auto"),
        ("cpu (A CPU)", "cpu"),
        ("cuda:0 (A GPU, 16 GB)", "cuda:0"),
    ]


def test_the_tokenizer_of_a_busy_model_is_not_waited_for(store, tmp_path):
    answers = []
    with store.lease("a") as loaded:
        assert store.tokenizer("a") is loaded.tokenizer  # the thread that has the model
        asking = threading.Thread(target=lambda: answers.append(store.tokenizer("a")))
        asking.start()
        asking.join(timeout=20)
    assert answers == [None]
    assert store.tokenizer("a") is loaded.tokenizer
    assert store.tokenizer(str(tmp_path / "missing")) is None


def test_a_tokenizer_is_loaded_without_its_model(store, loads, tmp_path):
    build_tokenizer().save_pretrained(tmp_path)
    tokenizer = store.tokenizer(str(tmp_path))
    assert len(tokenizer("The cat sat.").input_ids) > 1
    assert store.tokenizer(str(tmp_path)) is tokenizer
    assert loads == []
