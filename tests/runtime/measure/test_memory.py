"""What is said when the memory runs out, and that what is said would fit."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.errors import DeviceError, TextError
from focus_runtime.measure import memory
from focus_runtime.measure.memory import (
    free_bytes,
    is_lost_gpu,
    is_out_of_memory,
    longest_that_fits,
    lost_gpu,
    too_long,
)
from focus_runtime.run import engine
from focus_runtime.run.engine import RunOptions, analyze
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids

CPU = torch.device("cpu")


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


@pytest.fixture
def focus():
    model = build_model(max_position_embeddings=4096)
    return compose(model, build_centroids(model))


@pytest.mark.parametrize("free", [10_000, 3_000_000, 10**12])
def test_the_length_named_follows_the_free_memory(focus, free, monkeypatch):
    """Peaks grow by 5,000 bytes a token here."""
    ids, peaks = random_ids(4000), iter([1_000_000, 1_000_000 + 5_000 * 250])
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    monkeypatch.setattr(memory, "reset_peak_memory", lambda device: True)
    monkeypatch.setattr(memory, "peak_bytes", lambda device: next(peaks))
    assert longest_that_fits(focus, ids) == {10_000: 1, 3_000_000: 480, 10**12: 3900}[free]


def test_where_nothing_is_known_no_length_is_named(focus, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)
    message = str(too_long(focus, random_ids(500)))
    assert message.startswith("500 tokens need more memory than there is on cpu; set a smaller longest text")
    assert free_bytes(CPU) is None or free_bytes(CPU) > 1 << 20


def test_an_analysis_names_the_length_that_fits_and_leaves_the_model_as_it_was(monkeypatch):
    model, text = build_model(max_position_embeddings=4096), "The cat sat on the mat. " * 60
    score = engine._score

    def full_memory(network, hidden, ids):
        if ids.shape[1] > 300:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return score(network, hidden, ids)

    monkeypatch.setattr(engine, "_score", full_memory)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 30)
    options = RunOptions(repeats=1)
    with pytest.raises(
        TextError, match=r"1,\d+ tokens need more memory than there is on cpu; expected about [\d,]+ tokens"
    ):
        analyze(model, build_tokenizer(), text, build_centroids(model), options)
    trace = analyze(model, build_tokenizer(), text[:200], build_centroids(model), options)
    assert trace.num_tokens == 200


def test_a_gpu_that_fails_is_one_line(monkeypatch):
    error = RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported later")
    assert is_lost_gpu(error)
    assert not is_lost_gpu(RuntimeError("shape mismatch"))
    assert str(lost_gpu(error)) == (
        "the GPU failed: CUDA error: unspecified launch failure; start the program again, or choose the device cpu"
    )
    model = build_model()
    monkeypatch.setattr(engine, "_score", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(DeviceError, match="the GPU failed"):
        analyze(model, build_tokenizer(), "The cat sat. " * 9, build_centroids(model), RunOptions(repeats=1))
