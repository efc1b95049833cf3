"""On a CUDA GPU: every path against the float64 reference, composed models, memory and speed. Skipped without one.

python -m pytest -m gpu tests/runtime/attention/cuda/test_on_gpu.py
"""

from __future__ import annotations

import statistics
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from focus_runtime.attention import focus_attention
from focus_runtime.composition.attach import compose
from focus_runtime.gpu import Launches
from focus_runtime.mask.rule import Extent
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.attention.by_keyword import (
    differentiable_attention,
    flex_focus_attention,
    gpu_decomposition,
    reference_attention,
    straight_through_attention,
)
from tests.runtime.attention.inputs import assert_same, oracle, padded, random_membership

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]
DEVICE = "cuda"
HALF = 1.5e-2  # the target for values around 1, used as relative and absolute tolerance


def random_inputs(length, *, batch=1, heads=4, kv_heads=2, dim=64, queries=None, dtype=torch.bfloat16):
    """Laid out (B, T, H, D) and transposed, as models hand them over."""

    def draw(tokens, count):
        return torch.randn(batch, tokens, count, dim, device=DEVICE).to(dtype).transpose(1, 2)

    return draw(queries or length, heads), draw(length, kv_heads), draw(length, kv_heads)


def members(length, **settings):
    return random_membership(length, **settings).to(DEVICE)


# --- the decomposition


@pytest.mark.parametrize(("dtype", "dim"), [(torch.bfloat16, 64), (torch.bfloat16, 72), (torch.float32, 64)])
@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("window", [0, 200])
def test_the_calls_that_the_triton_kernels_leave(dtype, dim, top_k, window, monkeypatch, fresh_seed):
    monkeypatch.setattr("focus_runtime.attention.decomposed.grouped_fits", lambda *_: False)
    inputs, membership = random_inputs(1000, dim=dim, dtype=dtype, batch=2), members(1000, top_k=top_k, batch=2)
    settings: dict[str, Any] = {"window": window, "num_sinks": 4, "scale": dim**-0.5}
    actual = gpu_decomposition(*inputs, membership, **settings)
    tolerance = HALF * 2 ** (top_k - 1) if dtype == torch.bfloat16 else 2e-4  # what is taken away amplifies rounding
    assert_same(actual, oracle(inputs, membership, **settings), tolerance)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_nothing_waits_for_the_device_when_the_extent_is_known(top_k, fresh_seed):
    inputs, membership = random_inputs(1000), members(1000, groups=8, top_k=top_k)
    settings: dict[str, Any] = {"window": 64, "num_sinks": 4, "scale": 0.125, "extent": Extent(8, top_k, True)}
    gpu_decomposition(*inputs, membership, **settings)
    torch.cuda.set_sync_debug_mode("error")
    try:
        gpu_decomposition(*inputs, membership, **settings)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def graph_of(work):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


@torch.no_grad()
def test_a_cuda_graph_replays_it_on_new_inputs(fresh_seed):
    inputs, membership = random_inputs(1000), members(1000, groups=8)
    settings: dict[str, Any] = {"window": 64, "num_sinks": 4, "scale": 0.125}
    graph, result = graph_of(lambda: gpu_decomposition(*inputs, membership, extent=Extent(8, 1, True), **settings))
    for x, new in zip((*inputs, membership), (*random_inputs(1000), members(1000, groups=8)), strict=True):
        x.copy_(new)
    graph.replay()
    assert_same(result, oracle(inputs, membership, **settings), HALF)


# --- gradients


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("dim", [64, 72, 128])
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2)])
def test_gradients_equal_the_oracles(dtype, dim, top_k, heads, fresh_seed):
    inputs = [
        x.requires_grad_() for x in random_inputs(700, dim=dim, dtype=dtype, batch=2, heads=heads[0], kv_heads=heads[1])
    ]
    membership, upstream = members(700, groups=6, top_k=top_k, batch=2), torch.randn_like(inputs[0])
    settings: dict[str, Any] = {"window": 64, "num_sinks": 3, "scale": dim**-0.5}
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = torch.autograd.grad((oracle(exact, membership, **settings)[0] * upstream).sum(), exact)
    actual = torch.autograd.grad(
        (differentiable_attention(*inputs, membership, **settings)[0] * upstream).sum(), inputs
    )
    for one, other in zip(actual, expected, strict=True):
        error = (one.double() - other).norm() / other.norm()
        assert error < (1e-4 if dtype == torch.float32 else 1e-2)


def test_routers_get_their_gradient(fresh_seed):
    inputs = [x.requires_grad_() for x in random_inputs(600, dtype=torch.float32)]
    probabilities = torch.softmax(2 * torch.randn(1, 600, 8, device=DEVICE), -1).requires_grad_()
    upstream = torch.randn_like(inputs[0])
    settings: dict[str, Any] = {"top_k": 2, "window": 32, "num_sinks": 2, "scale": 0.125}

    def of(tensors, groups):
        out = straight_through_attention(*tensors, groups, **settings)
        return torch.autograd.grad((out * upstream.to(out)).sum(), [*tensors, groups])

    on_cpu = [x.detach().double().cpu().requires_grad_() for x in (*inputs, probabilities)]
    upstream_cpu, actual = upstream.cpu(), of(inputs, probabilities)
    upstream = upstream_cpu
    for one, other in zip(actual, of(on_cpu[:3], on_cpu[3]), strict=True):
        assert (one.double().cpu() - other).norm() / other.norm() < 1e-4


# --- flex


FLEX = [
    {},
    {"top_k": 2, "softcap": 20.0},
    {"top_k": 3, "queries": 77},
    {"top_k": 2, "side": "left"},
    {"side": "right"},
    {"dtype": torch.float16, "dim": 128},
    {"dtype": torch.float32},
    {"heads": 4, "kv_heads": 4},
    {"length": 64},
    {"length": 2048, "window": 0, "num_sinks": 0},
]


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("case", FLEX, ids=lambda case: "-".join(f"{k}={v}" for k, v in case.items()) or "plain")
def test_flex_equals_the_oracle(case, sort, fresh_seed):
    values = {"length": 1000, "top_k": 1, "side": None, "softcap": None, "window": 60, "num_sinks": 4, **case}
    length, side = values["length"], values["side"]
    shape = {name: values[name] for name in ("dim", "dtype", "heads", "kv_heads", "queries") if name in values}
    inputs = random_inputs(length, batch=2, **shape)
    membership = members(length, batch=2, top_k=values["top_k"])
    settings = {
        "window": values["window"],
        "num_sinks": values["num_sinks"],
        "softcap": values["softcap"],
        "scale": 0.125,
        "key_padding": padded(length, 2, side).to(DEVICE) if side else None,
    }
    with torch.no_grad():
        actual = flex_focus_attention(*inputs, membership, sort=sort, **settings)
    tolerance = 5e-5 if inputs[0].dtype == torch.float32 else HALF
    assert_same(actual, oracle(inputs, membership, **settings), tolerance)


@pytest.mark.parametrize("sort", [True, False])
def test_flex_gradients(sort, fresh_seed):
    inputs, membership = random_inputs(300, dtype=torch.float32), members(300, top_k=2)
    settings: dict[str, Any] = {"window": 20, "num_sinks": 2, "scale": 0.125}
    upstream = torch.randn_like(inputs[0])
    leaves = [x.clone().requires_grad_() for x in inputs]
    out, _ = flex_focus_attention(*leaves, membership, sort=sort, **settings)
    actual = torch.autograd.grad((out * upstream).sum(), leaves)
    leaves = [x.double().requires_grad_() for x in inputs]
    exact = torch.autograd.grad((reference_attention(*leaves, membership, **settings)[0] * upstream).sum(), leaves)
    for one, other in zip(actual, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("backend", ["auto", "masked", "decomposed", "flex"])
def test_the_public_op(backend, fresh_seed):
    inputs, membership = random_inputs(600), members(600)
    with torch.no_grad():
        actual = focus_attention(*inputs, membership, window=30, num_sinks=2, backend=backend, return_lse=True)
    assert_same(actual, oracle(inputs, membership, window=30, num_sinks=2, scale=0.125), 3e-2)


# --- composed models


@torch.no_grad()
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize(("backend", "dtype"), [("decomposed", torch.bfloat16), ("flex", torch.float32)])
def test_composed_llama_gives_the_masked_logits(backend, dtype, top_k, fresh_seed):
    """One layer: with two, a rounding difference in the first may move a token to another group in the second."""
    model = build_model(num_hidden_layers=1).to(DEVICE, dtype)
    ids = random_ids(200, batch=2, seed=fresh_seed).to(DEVICE)
    logits_by_backend = {}
    for name in (backend, "masked"):
        focus = compose(model, build_centroids(model), top_k=top_k, backend=name)
        logits_by_backend[name] = model(input_ids=ids, use_cache=False).logits.float()
        focus.detach()
    plain = model(input_ids=ids, use_cache=False).logits.float()
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-4
    error = (logits_by_backend[backend] - logits_by_backend["masked"]).norm() / logits_by_backend["masked"].norm()
    assert error < tolerance
    assert (
        plain - logits_by_backend["masked"]
    ).norm() / plain.norm() > 2 * error  # Focus changes more than rounding does


# --- which kernels


@pytest.fixture
def launched(monkeypatch):
    """Names of the Triton kernels that run, in order."""
    names, run = [], Launches.run

    def noted(self, name, *arguments):
        names.append(name)
        return run(self, name, *arguments)

    monkeypatch.setattr(Launches, "run", noted)
    return names


def refuse(*_, **__):
    raise AssertionError("another kernel was called")


@torch.no_grad()
@pytest.mark.parametrize(("top_k", "expected"), [(1, ["far 0"]), (2, ["far 0", "far 1"])])
def test_half_precision_runs_in_triton(top_k, expected, launched, monkeypatch, fresh_seed):
    """A short text by the kernel that tests every pair, others by groups."""
    from focus_runtime.attention.cuda import pairwise  # needs Triton

    monkeypatch.setattr("focus_runtime.attention.decomposed.decomposed_attention", refuse)
    monkeypatch.setattr("focus_runtime.attention.dispatch.masked_attention", refuse)
    inputs, membership = random_inputs(600), members(600, top_k=top_k)
    for most_work, names in ((pairwise.MOST_WORK, ["pairwise"]), ({1: 0, 2: 0}, ["near", "place", *expected])):
        monkeypatch.setattr(pairwise, "MOST_WORK", most_work)
        actual = focus_attention(*inputs, membership, window=30, num_sinks=2, return_lse=True)
        assert launched == names
        assert_same(actual, oracle(inputs, membership, window=30, num_sinks=2, scale=0.125), 3e-2)
        launched.clear()
    query = inputs[0][:, :, -1:]
    actual = focus_attention(query, *inputs[1:], membership, window=30, num_sinks=2, return_lse=True)
    assert launched == ["chunk", "join"]
    assert_same(actual, oracle((query, *inputs[1:]), membership, window=30, num_sinks=2, scale=0.125), 3e-2)


@torch.no_grad()
def test_a_kernel_that_fails_is_left_out_with_one_warning(monkeypatch, fresh_seed):
    monkeypatch.setattr("focus_runtime.gpu._failed", set())
    monkeypatch.setattr(Launches, "run", refuse)
    inputs, membership = random_inputs(600), members(600)
    settings: dict[str, Any] = {"window": 30, "num_sinks": 2, "backend": "decomposed", "return_lse": True}
    with pytest.warns(RuntimeWarning, match="grouped attention in Triton is left out"):
        actual = focus_attention(*inputs, membership, **settings)
    assert_same(actual, oracle(inputs, membership, window=30, num_sinks=2, scale=0.125), 3e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        focus_attention(*inputs, membership, **settings)


@torch.no_grad()
def test_a_composed_model_generates_with_them(launched, fresh_seed):
    model = build_model(num_hidden_layers=1).to(DEVICE, torch.bfloat16)
    ids = random_ids(200, seed=fresh_seed).to(DEVICE)
    focus = compose(model, build_centroids(model))
    tokens = model.generate(ids, max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0)
    assert launched == ["route", "pairwise", *["decide", "chunk", "join"] * 7]
    whole = model(input_ids=tokens, use_cache=False).logits[:, 199:-1].float()
    focus.detach()
    chosen = whole.gather(-1, tokens[:, 200:, None])
    assert (whole.amax(-1, keepdim=True) - chosen).max() < 0.05  # of nearly equal ones rounding may decide


# --- memory and speed


def peak(length, top_k):
    inputs, membership = random_inputs(length, heads=12, kv_heads=12), members(length, groups=8, top_k=top_k)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gpu_decomposition(*inputs, membership, window=128, num_sinks=4, scale=0.125)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("top_k", [1, 2])
def test_memory_grows_linearly(top_k):
    short, middle, long = (peak(length, top_k) for length in (65536, 131072, 262144))
    assert middle < 2.2 * short
    assert long < 2.2 * middle


def medians_in_turn(works, rounds=20, warm_up=3):
    """Milliseconds on the GPU by name. Every round calls each once, so that a host that changes its speed slows all."""
    times = {name: [] for name in works}
    for _ in range(warm_up + rounds):
        for name, work in works.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            stop.record()
            stop.synchronize()
            times[name].append(start.elapsed_time(stop))
    return {name: statistics.median(spent[warm_up:]) for name, spent in times.items()}


@pytest.mark.alone
@torch.no_grad()
@pytest.mark.parametrize("length", [1024, 4096, 8192, 32768])
def test_auto_takes_the_fastest_or_nearly(length, fresh_seed):
    """By what was measured on this GPU: at most a quarter slower than the best of the three."""
    inputs, membership = random_inputs(length, heads=8, kv_heads=8), members(length, groups=8)
    backends = ("auto", "masked", "flex", "decomposed")
    took = medians_in_turn(
        {name: partial(focus_attention, *inputs, membership, window=128, backend=name) for name in backends}
    )
    assert took.pop("auto") <= 1.25 * min(took.values())


@torch.no_grad()
def speedup(length, *, as_graph):
    inputs, membership = random_inputs(length, heads=12, kv_heads=12), members(length, groups=8)

    def full():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True, scale=0.125)

    def focus():
        return gpu_decomposition(*inputs, membership, window=128, num_sinks=4, scale=0.125, extent=Extent(8, 1, True))

    works = {"full": full, "focus": focus}
    took = medians_in_turn({name: graph_of(work)[0].replay for name, work in works.items()} if as_graph else works)
    return took["full"] / took["focus"]


@pytest.mark.alone
@pytest.mark.parametrize(("length", "as_graph", "least"), [(32768, False, 3), (4096, True, 1.3)])
def test_faster_than_full_attention(length, as_graph, least):
    assert speedup(length, as_graph=as_graph) > least
