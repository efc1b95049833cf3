from __future__ import annotations

import platform
from types import SimpleNamespace

import pytest
import torch

from focus_runtime.errors import DeviceError
from focus_runtime.models.devices import Placement, devices, place, processor_family, processor_name


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


def test_auto_without_a_gpu_is_the_cpu_in_float32(no_gpu):
    assert place() == Placement("cpu", "float32")
    assert place(dtype="bfloat16") == Placement("cpu", "bfloat16")


def test_auto_takes_the_first_gpu_in_bfloat16(two_gpus):
    assert place() == Placement("cuda:0", "bfloat16")
    assert place("cuda") == Placement("cuda:0", "bfloat16")
    assert place("cuda:1") == Placement("cuda:1", "float32")
    assert place("cpu") == Placement("cpu", "float32")
    assert [device.label for device in devices()[1:3]] == ["NVIDIA H100 80GB HBM3", "Tesla T4"]


def test_all_gpus_together_are_a_device(two_gpus):
    assert place("split") == Placement("split", "bfloat16")
    [both] = [device for device in devices() if device.name == "split"]
    assert (both.label, both.memory_bytes) == ("2 GPUs and main memory", 32 << 30)


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


def test_an_index_too_high_is_named(two_gpus):
    with pytest.raises(DeviceError, match=r"cuda:7 is not available: this machine has 2 CUDA devices, counted from 0"):
        place("cuda:7")


def test_an_old_card_has_no_bfloat16(two_gpus):
    with pytest.raises(
        DeviceError, match=r"cuda:1 \(Tesla T4\) does not compute in bfloat16; expected float32 or float16"
    ):
        place("cuda:1", "bfloat16")


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("vendor_id : AuthenticAMD\nflags : avx2 avx512f", "amd-avx512"),
        ("vendor_id : GenuineIntel\nflags : avx512f amx_tile", "intel-amx"),
        ("CPU implementer : 0x41", f"{platform.machine()}-avx512"),
    ],
)
def test_results_are_kept_by_make_and_instructions(text, family, monkeypatch):
    monkeypatch.setattr("focus_runtime.models.devices.Path.read_text", lambda _: text)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert processor_family() == family
