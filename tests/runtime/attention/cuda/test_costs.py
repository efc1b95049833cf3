"""What auto chooses on a GPU: backends are measured once and kept, estimates where they cannot be. On the CPU."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from focus_runtime.attention import costs as cpu_costs
from focus_runtime.attention.cuda import costs as gpu
from focus_runtime.attention.cuda import decomposed as decomposition
from focus_runtime.attention.cuda.costs import GpuCosts, Work, choose_on_cuda, fitted, gpu_costs, measure, work_of
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


@pytest.fixture
def unmeasured(monkeypatch):
    monkeypatch.setattr(gpu, "gpu_costs", lambda device, dtype: None)


@pytest.mark.parametrize(
    ("length", "extent", "changes", "expected"),
    [
        (8192, Extent(8, 1, True), {}, "decomposed"),
        (4096, Extent(8, 1, True), {}, "flex"),
        (1024, Extent(8, 1, True), {}, "masked"),
        (32768, Extent(4, 2, True), {}, "flex"),
        (32768, Extent(8, 2, True), {}, "decomposed"),
        (32768, Extent(16, 3, True), {}, "flex"),
        (32768, Extent(8, 1, True), {"softcap": 30.0}, "flex"),
        (32768, Extent(8, 1, True), {"gradients": True}, "flex"),
        (32768, Extent(8, 1, True), {"key_padding": torch.ones(1, 1, dtype=torch.bool)}, "flex"),
        (32768, Extent(8, 1, True), {"dtype": torch.float32}, "flex"),
        (32768, Extent(8, 1, True), {"dtype": torch.float64}, "masked"),
        (32768, Extent(8, 1, True), {"size": 256}, "decomposed"),
        (32768, Extent(8, 1, True), {"size": 264}, "flex"),
        (32768, Extent(8, 1, True), {"queries": 100}, "flex"),
        (32768, Extent(8, 1, True), {"queries": 1}, "masked"),
    ],
)
def test_estimates_where_nothing_is_measured(length, extent, changes, expected, monkeypatch, unmeasured):
    monkeypatch.setattr(
        decomposition, "unusable", lambda device, dtype, size: None if dtype.itemsize == 2 and size <= 256 else "no"
    )
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *_, **__: True)
    changes = dict(changes)
    queries, size = changes.pop("queries", length), changes.pop("size", 64)
    query = torch.empty(1, 1, queries, size, dtype=changes.pop("dtype", torch.bfloat16), device="meta")
    settings = {"window": 128, "key_padding": None, "softcap": None, "gradients": False, **changes}
    assert choose_on_cuda(query, torch.empty(1, 1, length, size, device="meta"), extent, **settings) == expected


def test_kernels_in_triton_take_what_they_can_at_every_length(monkeypatch):
    """Where they run nothing is measured, and no compiler is waited for."""
    monkeypatch.setattr(decomposition, "attention_fits", lambda what, query, key, value: query.dtype.itemsize == 2)
    monkeypatch.setattr(gpu, "gpu_costs", lambda *_: pytest.fail("nothing has to be measured"))

    def chosen(length, queries=None, dtype=torch.bfloat16, **changes):
        query = torch.empty(1, 8, queries or length, 64, dtype=dtype, device="meta")
        key = torch.empty(1, 8, length, 64, dtype=dtype, device="meta")
        settings = {"window": 128, "key_padding": None, "softcap": None, "gradients": False, **changes}
        return choose_on_cuda(query, key, Extent(8, 3, False), **settings)

    assert {chosen(length, softcap=cap) for length in (200, 4096, 1 << 20) for cap in (None, 30.0)} == {"decomposed"}
    assert chosen(200, window=5000) == "decomposed"
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *_, **__: True)
    monkeypatch.setattr(gpu, "gpu_costs", lambda *_: None)
    assert chosen(9000, window=5000) == "flex"  # so large a window is not looked through
    assert chosen(4096, key_padding=torch.ones(1, 4096, dtype=torch.bool)) == "flex"
    assert chosen(4096, gradients=True) == "flex"
    assert chosen(4096, dtype=torch.float32) == "flex"


def test_flex_that_fails_on_this_gpu_is_not_chosen(monkeypatch, unmeasured):
    """Its tiles exceed the shared memory of some GPUs at head size 256 or in fp32."""
    tried = []
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *given, **more: tried.append((given, more)))
    query = torch.empty(1, 1, 4096, 256, dtype=torch.float32, device="meta")
    settings = {"window": 128, "key_padding": None, "softcap": None, "gradients": True}
    assert choose_on_cuda(query, query, Extent(8, 1, True), **settings) == "masked"
    assert tried == [((torch.device("meta"), torch.float32, 256), {"gradients": True})]
    monkeypatch.setattr(gpu, "has_backward", lambda query: True)
    assert choose_on_cuda(query, query, Extent(8, 2, True), **settings) == "decomposed"  # memory linear in T
    assert choose_on_cuda(query, query, Extent(8, 3, True), **settings) == "masked"
    assert choose_on_cuda(query, query, Extent(8, 2, True), **(settings | {"gradients": False})) == "masked"


def test_what_was_measured_decides_among_what_can_run(monkeypatch):
    """Launches weigh in short texts, pairs in long ones, and a backend that cannot run is never taken."""
    measured = GpuCosts({"masked": [1e-5, 0.0, 2e-12], "decomposed": [1e-3, 0.0, 1e-12], "flex": [5e-5, 0.0, 3e-12]})
    monkeypatch.setattr(gpu, "gpu_costs", lambda device, dtype: measured)
    monkeypatch.setattr(decomposition, "unusable", lambda device, dtype, size: None if size <= 256 else "no")
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *_, **__: True)

    def chosen(length, groups=8, top_k=1, size=64, **changes):
        query = torch.empty(1, 8, length, size, dtype=torch.bfloat16, device="meta")
        settings = {"window": 128, "key_padding": None, "softcap": None, "gradients": False, **changes}
        return choose_on_cuda(query, query, Extent(groups, top_k, True), **settings)

    assert [chosen(length) for length in (512, 4096, 65536)] == ["masked", "flex", "decomposed"]
    assert chosen(65536, softcap=30.0) == "flex"
    assert chosen(65536, size=264) == "flex"
    assert chosen(65536, size=8) == "decomposed"
    assert chosen(65536, groups=4, top_k=3) == "masked"  # more operations than full attention
    del measured.seconds["flex"]
    assert chosen(65536, softcap=30.0) == "masked"


def test_heads_without_groups_take_what_needs_no_sorting(monkeypatch, unmeasured):
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *rest, **more: True)

    def chosen(length, *, new=None, padding=None, gradients=False):
        query = torch.empty(1, 1, new or length, 64, device="meta", dtype=torch.bfloat16)
        key = torch.empty(1, 1, length, 64, device="meta", dtype=torch.bfloat16)
        settings = {"window": 9, "key_padding": padding, "softcap": None, "gradients": gradients}
        return choose_on_cuda(query, key, Extent(8, 0, True), **settings)

    assert chosen(4096) == chosen(4096, gradients=True) == "flex"
    assert chosen(512) == chosen(4096, new=1) == chosen(4096, padding=torch.ones(1, 4096)) == "masked"
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *rest, **more: False)
    assert chosen(4096) == "masked"
    monkeypatch.setattr(gpu, "grouped_fits", lambda *_: True)
    assert chosen(4096) == chosen(512) == "decomposed"
    assert chosen(4096, gradients=True) == chosen(4096, new=1) == "masked"
