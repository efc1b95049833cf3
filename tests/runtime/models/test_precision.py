from __future__ import annotations

import time

import pytest
import torch

from focus_runtime.models.devices import native_dtype


@pytest.mark.parametrize(("native", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_the_processor_decides(native, expected, monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: native)
    assert native_dtype() == native_dtype(torch.device("cpu")) == expected


def test_without_the_library_that_has_the_kernels_nothing_is_native(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert native_dtype("cpu") == "float32"


@pytest.mark.parametrize(("native", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_the_gpu_decides(native, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert native_dtype("cuda:1") == expected


def test_other_devices_compute_in_float32():
    assert native_dtype("mps") == native_dtype("meta") == "float32"


def test_what_is_called_native_is_not_emulated_here():
    """An emulated product takes tens of times as long; ten leaves room for a busy machine."""
    if native_dtype() == "float32":
        pytest.skip("this processor has no bf16 instructions")
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = torch.randn(512, 512).to(dtype), torch.randn(512, 512).to(dtype)
        for _ in range(3):
            start = time.perf_counter()
            left @ right
            seconds[dtype] = min(seconds.get(dtype, 1e9), time.perf_counter() - start)
    assert seconds[torch.bfloat16] < 10 * seconds[torch.float32]
