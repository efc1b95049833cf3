"""What is said when the memory runs out, and that what is said would fit."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.config import TextOptions
from focus_runtime.errors import DeviceError, MemoryShortError, TextError
from focus_runtime.failures import Advice
from focus_runtime.measure import memory
from focus_runtime.measure.loss import final_hidden
from focus_runtime.measure.memory import longest_that_fits, within_memory
from focus_runtime.run import text as engine
from focus_runtime.run.text import analyze
from tests.helpers import build_centroids, build_model, build_tokenizer, random_ids

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("free", "reserve", "expected"),
    [(10_000, 0, 1), (3_000_000, 0, 480), (4_000_000, 1_000_000, 480), (10**12, 0, 3900)],
)
def test_the_length_named_follows_the_free_memory(free, reserve, expected, monkeypatch):
    """Peaks grow by 5,000 bytes a token here."""
    peaks, read = iter([1_000_000, 1_000_000 + 5_000 * 250]), []
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    monkeypatch.setattr(memory, "reset_peak_memory", lambda device: True)
    monkeypatch.setattr(memory, "peak_bytes", lambda device: next(peaks))
    assert longest_that_fits(read.append, 4000, CPU, reserve=reserve) == expected
    assert read == [250, 250]  # the first takes what is taken once


def test_a_beginning_that_fits_neither_names_no_length():
    def read(count):
        raise torch.OutOfMemoryError("CUDA out of memory")

    assert longest_that_fits(read, 4000, CPU) is None
    with pytest.raises(ZeroDivisionError):
        longest_that_fits(lambda count: 1 // 0, 4000, CPU)


ADVICE = Advice(fits="take {0}", otherwise="take less", work="for this, ")


def failing_beyond(limit, model, ids):
    """A pass of the model, and a lack of memory after it where the ids are too many."""
    final_hidden(model, ids)
    if ids.shape[1] > limit:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_work_is_told_what_it_read_and_what_fits(monkeypatch):
    model = build_model(max_position_embeddings=4096)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 40)
    with within_memory(model, ADVICE):
        failing_beyond(300, model, random_ids(300))

    def decoding():
        final_hidden(model, random_ids(500, batch=2))
        final_hidden(model, random_ids(1))  # is no text
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MemoryShortError) as raised, within_memory(model, ADVICE):
        decoding()
    assert str(raised.value) == (
        "for this, 2 sequences of 500 tokens need more memory than there is on cpu; "
        "expected about 499 tokens or fewer; take 499"
    )
    assert not model.get_input_embeddings()._forward_pre_hooks


def test_where_nothing_is_known_no_length_is_named(monkeypatch):
    model = build_model(max_position_embeddings=4096)
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)
    with pytest.raises(MemoryShortError) as raised, within_memory(model):
        failing_beyond(300, model, random_ids(500))
    assert str(raised.value) == (
        "500 tokens need more memory than there is on cpu; "
        "set a smaller longest text (--max-tokens), or close other programs"
    )
    with pytest.raises(MemoryShortError, match="the model needs more memory than there is"), within_memory(model):
        raise MemoryError


def test_an_analysis_names_the_length_that_fits_and_leaves_the_model_as_it_was(monkeypatch):
    model, text = build_model(max_position_embeddings=4096), "The cat sat on the mat. " * 60
    score = engine.token_predictions

    def full_memory(network, hidden, ids):
        if ids.shape[1] > 300:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return score(network, hidden, ids)

    monkeypatch.setattr(engine, "token_predictions", full_memory)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 30)
    options = TextOptions(repeats=1)
    with pytest.raises(
        TextError, match=r"1,\d+ tokens need more memory than there is on cpu; expected about [\d,]+ tokens"
    ):
        analyze(model, build_tokenizer(), text, build_centroids(model), options)
    trace = analyze(model, build_tokenizer(), text[:200], build_centroids(model), options)
    assert trace.num_tokens == 200


def test_a_gpu_that_fails_is_one_line(monkeypatch):
    error = RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported later")
    model = build_model()
    monkeypatch.setattr(engine, "token_predictions", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(DeviceError, match="the GPU failed"):
        analyze(model, build_tokenizer(), "The cat sat. " * 9, build_centroids(model), TextOptions(repeats=1))
