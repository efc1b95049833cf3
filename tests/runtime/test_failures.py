"""Which failures are no defect, and that nothing of the failed work stays in memory."""

from __future__ import annotations

import weakref

import pytest
import torch

from focus_runtime.failures import device_failure, is_lost_gpu, is_out_of_memory, release


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("MPS backend out of memory"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_of_memory_are_known(error, expected):
    assert is_out_of_memory(error) is expected


def test_torch_really_says_so():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60)
    assert is_out_of_memory(raised.value)


def test_a_gpu_that_fails_is_told_from_one_that_is_full():
    assert is_lost_gpu(
        RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported later")
    )
    assert not is_lost_gpu(RuntimeError("shape mismatch"))
    assert not is_lost_gpu(RuntimeError("CUDA error: out of memory"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))


def test_what_a_user_is_told():
    assert str(device_failure(RuntimeError("CUDA error: unspecified launch failure\nmore"))) == (
        "the GPU failed: CUDA error: unspecified launch failure; start the program again, or choose the device cpu"
    )
    assert str(device_failure(MemoryError())) == ("the memory ran out; close other programs, or give a shorter text")
    assert device_failure(RuntimeError("shape mismatch")) is None


def test_what_a_failed_function_held_is_let_go():
    seen = []

    def failing():
        large = torch.ones(3)
        seen.append(weakref.ref(large))
        raise MemoryError

    def again():
        try:
            failing()
        except MemoryError as error:
            raise MemoryError("again") from error

    with pytest.raises(MemoryError) as raised:
        again()
    assert seen[0]() is not None
    release(raised.value)
    assert seen[0]() is None
