"""A GPU's backends are measured once and kept; what is measured explains itself. On the CPU, over the plain kernel."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from focus_runtime.attention import costs as cpu_costs
from focus_runtime.attention.cuda import costs as gpu
from focus_runtime.attention.cuda.costs import GpuCosts, Work, fitted, gpu_costs, measure, work_of
from focus_runtime.attention.varlen import PLAIN
from focus_runtime.mask.rule import Extent

DEVICE = torch.device("cpu")


@pytest.fixture
def plain(tmp_path, monkeypatch):
    """A "GPU" that is the CPU: the plain kernel, short texts, a cache of its own."""
    properties = SimpleNamespace(name="A GPU/40 GB", major=9, minor=0)
    monkeypatch.setattr(cpu_costs, "default_cache_dir", lambda: tmp_path)
    monkeypatch.setattr(gpu, "_known", {})
    monkeypatch.setattr(gpu, "LENGTHS", (130, 260, 400))
    monkeypatch.setattr("focus_runtime.attention.cuda.decomposed.unusable", lambda *_: None)
    monkeypatch.setattr("focus_runtime.attention.cuda.decomposed.best_kernel", lambda *_: PLAIN)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return tmp_path


def test_the_fit_finds_the_costs_that_times_come_from(fresh_seed):
    draw = random.Random(torch.initial_seed())
    truth = [draw.uniform(1e-5, 1e-3), draw.uniform(1e-10, 1e-8), draw.uniform(1e-13, 1e-11)]
    works = [Work(8 * length, 8 * length * length / 16) for length in gpu.LENGTHS]
    exact = [(work, truth[0] + truth[1] * work.rows + truth[2] * work.pairs) for work in works]
    assert fitted(exact) == pytest.approx(truth, rel=1e-3)
    assert fitted([(work, 3e-12 * work.pairs) for work in works]) == pytest.approx([0, 0, 3e-12], abs=1e-15, rel=1e-6)
    noisy = fitted([(work, seconds * draw.uniform(0.7, 1.3)) for work, seconds in exact])
    assert min(noisy) >= 0


def test_work_grows_as_the_backends_do():
    extent, shape = Extent(8, 1, True), (2, 4, 1000, 128)
    masked, decomposed = (work_of(name, shape, extent, 128) for name in ("masked", "decomposed"))
    assert masked == Work(8000, 8 * 500_000 * 2)
    assert decomposed == Work(8000, 8 * (500_000 / 8 + 1000 * 192) * 2)
    assert work_of("decomposed", shape, Extent(8, 2, True), 128).rows == 16_000


@pytest.mark.slow
def test_every_backend_is_timed_on_its_own_call(plain):
    costs = measure(DEVICE, torch.float32)
    assert set(costs.seconds) == {"masked", "decomposed", "flex"}
    for values in costs.seconds.values():
        assert min(values) >= 0 < max(values)


def test_it_is_measured_once_and_kept_for_the_next_process(plain, monkeypatch):
    measured = []

    def count(device, dtype):
        measured.append(dtype)
        return GpuCosts({"masked": [float(len(measured)), 0.0, 0.0]})

    monkeypatch.setattr(gpu, "measure", count)
    first = gpu_costs(DEVICE, torch.bfloat16)
    assert gpu_costs(DEVICE, torch.bfloat16) == first
    monkeypatch.setattr(gpu, "_known", {})
    assert gpu_costs(DEVICE, torch.bfloat16) == first
    assert gpu_costs(DEVICE, torch.float16) != first
    assert measured == [torch.bfloat16, torch.float16]
    assert len(list((plain / "costs").iterdir())) == 2


def test_where_it_cannot_be_measured_estimates_are_left(plain, monkeypatch):
    def fail(device, dtype):
        raise RuntimeError("CUDA error: no kernel image\nmore")

    monkeypatch.setattr(gpu, "measure", fail)
    with pytest.warns(RuntimeWarning, match="estimates.*no kernel image$"):
        assert gpu_costs(DEVICE, torch.bfloat16) is None
    assert gpu_costs(DEVICE, torch.bfloat16) is None  # without another warning
    monkeypatch.setattr(gpu, "_known", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert gpu_costs(DEVICE, torch.bfloat16) is None  # measured after the capture, not in it
    assert gpu._known == {}
