"""The backend that `auto` takes on CUDA."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.attention.cuda import costs as cuda_choice
from focus_runtime.attention.cuda import decomposed as decomposition
from focus_runtime.attention.cuda.costs import GpuCosts, choose_on_cuda
from focus_runtime.mask.rule import Extent


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch):
    monkeypatch.setattr(cuda_choice, "gpu_costs", lambda device, dtype: None)


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
def test_estimates_where_nothing_is_measured(length, extent, changes, expected, monkeypatch):
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
    monkeypatch.setattr(cuda_choice, "gpu_costs", lambda *_: pytest.fail("nothing has to be measured"))

    def chosen(length, queries=None, dtype=torch.bfloat16, **changes):
        query = torch.empty(1, 8, queries or length, 64, dtype=dtype, device="meta")
        key = torch.empty(1, 8, length, 64, dtype=dtype, device="meta")
        settings = {"window": 128, "key_padding": None, "softcap": None, "gradients": False, **changes}
        return choose_on_cuda(query, key, Extent(8, 3, False), **settings)

    assert {chosen(length, softcap=cap) for length in (200, 4096, 1 << 20) for cap in (None, 30.0)} == {"decomposed"}
    assert chosen(200, window=5000) == "decomposed"
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *_, **__: True)
    monkeypatch.setattr(cuda_choice, "gpu_costs", lambda *_: None)
    assert chosen(9000, window=5000) == "flex"  # so large a window is not looked through
    assert chosen(4096, key_padding=torch.ones(1, 4096, dtype=torch.bool)) == "flex"
    assert chosen(4096, gradients=True) == "flex"
    assert chosen(4096, dtype=torch.float32) == "flex"


def test_flex_that_fails_on_this_gpu_is_not_chosen(monkeypatch):
    """Its tiles exceed the shared memory of some GPUs at head size 256 or in fp32."""
    tried = []
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *given, **more: tried.append((given, more)))
    query = torch.empty(1, 1, 4096, 256, dtype=torch.float32, device="meta")
    settings = {"window": 128, "key_padding": None, "softcap": None, "gradients": True}
    assert choose_on_cuda(query, query, Extent(8, 1, True), **settings) == "masked"
    assert tried == [((torch.device("meta"), torch.float32, 256), {"gradients": True})]
    monkeypatch.setattr(cuda_choice, "has_backward", lambda query: True)
    assert choose_on_cuda(query, query, Extent(8, 2, True), **settings) == "decomposed"  # memory linear in T
    assert choose_on_cuda(query, query, Extent(8, 3, True), **settings) == "masked"
    assert choose_on_cuda(query, query, Extent(8, 2, True), **(settings | {"gradients": False})) == "masked"


def test_what_was_measured_decides_among_what_can_run(monkeypatch):
    """Launches weigh in short texts, pairs in long ones, and a backend that cannot run is never taken."""
    measured = GpuCosts({"masked": [1e-5, 0.0, 2e-12], "decomposed": [1e-3, 0.0, 1e-12], "flex": [5e-5, 0.0, 3e-12]})
    monkeypatch.setattr(cuda_choice, "gpu_costs", lambda device, dtype: measured)
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


def test_heads_without_groups_take_what_needs_no_sorting(monkeypatch):
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
    monkeypatch.setattr(cuda_choice, "grouped_fits", lambda *_: True)
    assert chosen(4096) == chosen(512) == "decomposed"
    assert chosen(4096, gradients=True) == chosen(4096, new=1) == "masked"
