"""Varlen kernels: the plain loop, the adapters and their choice."""

from __future__ import annotations

import types

import pytest
import torch

from focus_runtime.attention import varlen
from focus_runtime.attention.varlen import PLAIN, Kernel, best_kernel, plain_varlen, unusable, works
from focus_runtime.errors import InputError
from tests.runtime.attention.by_keyword import reference_attention
from tests.runtime.attention.inputs import INF, assert_same


def test_plain_kernel_leaves_the_rest_undefined(fresh_seed):
    query = torch.randn(10, 2, 8, dtype=torch.float64)
    cu_lengths = torch.tensor([0, 3, 3, 8], dtype=torch.int32)
    out, lse = plain_varlen(query, query, query, cu_lengths, 5, 0.3, 1)
    assert out[8:].isnan().all()
    assert lse[:, 8:].isnan().all()
    inputs = [query[3:8].transpose(0, 1)[None]] * 3
    lonely = 1 << torch.arange(5)[None]  # no shared groups: the window alone
    expected = reference_attention(*inputs, lonely, window=1, scale=0.3)
    assert_same((out[3:8].transpose(0, 1)[None], lse[None, :, 3:8]), expected, 1e-12)


def test_kernel_adapters_pass_what_flash_attention_expects(fresh_seed, monkeypatch):
    """A stand-in for the packages and the operator: argument names, padding of the head size, +inf mended."""
    seen = {}

    def flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        return_attn_probs=False,
    ):
        seen.update(causal=causal, window=window_size, lse=return_attn_probs)
        assert q.shape[-1] % 8 == 0
        assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        out, lse = plain_varlen(
            q, k, v, cu_seqlens_q, max_seqlen_q, softmax_scale, window_size[0] if window_size[0] >= 0 else None
        )
        lse[:, 0] = INF
        return out, lse, None

    def operator(
        q, k, v, cu_q, cu_k, max_q, max_k, dropout, causal, debug, *, scale, window_size_left, window_size_right
    ):
        assert (dropout, causal, debug, window_size_right) == (
            0.0,
            True,
            False,
            None if window_size_left is None else 0,
        )
        out, lse = plain_varlen(q, k, v, cu_q, max_q, scale, window_size_left)
        lse[:, 0] = INF
        return out, lse, None, None, None

    monkeypatch.setattr(varlen, "_forward", operator)
    query, key, value = torch.randn(3, 9, 2, 12).unbind()
    key = key.transpose(1, 2).contiguous().transpose(1, 2)
    cu_lengths = torch.tensor([0, 4, 9], dtype=torch.int32)
    for window in (None, 2):
        expected = plain_varlen(query, key, value, cu_lengths, 5, 0.3, window)
        expected[1][:, 0] = -INF
        for run in (varlen.torch_varlen, varlen._package_varlen(flash_attn_varlen_func)):
            assert_same(run(query, key, value, cu_lengths, 5, 0.3, window), expected, 1e-6)
        assert seen == {"causal": True, "window": (-1, -1) if window is None else (2, 0), "lse": True}


def test_choice_of_kernel(monkeypatch):
    def package(version):
        return types.SimpleNamespace(__version__=version, flash_attn_varlen_func=lambda q: q)

    installed = {}
    monkeypatch.setattr(varlen, "_imported", installed.get)
    names = {}
    for label, packages, capability in (
        ("bare", {}, (9, 0)),
        ("old card", {}, (7, 5)),
        ("two", {"flash_attn": package("2.8.3")}, (8, 0)),
        ("too old", {"flash_attn": package("2.5.9")}, (8, 0)),
        ("three", {"flash_attn": package("2.8.3"), "flash_attn_interface": package("3")}, (9, 0)),
    ):
        installed.clear()
        installed.update(packages)
        varlen.available_kernels.cache_clear()
        names[label] = [kernel.name.split(" flash attention")[0] for kernel in varlen.available_kernels(capability)]
    varlen.available_kernels.cache_clear()
    own = f"torch {torch.__version__}"
    assert names == {
        "bare": [own],
        "old card": [],
        "two": ["flash-attn 2.8.3", own],
        "too old": [own],
        "three": ["flash-attn 3", "flash-attn 2.8.3", own],
    }


@pytest.mark.parametrize(
    ("device", "dtype", "size", "reason"),
    [("cpu", torch.bfloat16, 64, "cpu"), ("cuda", torch.float32, 64, "float32"), ("cuda", torch.float16, 264, "264")],
)
def test_inputs_without_a_kernel_are_named(device, dtype, size, reason):
    assert reason in unusable(torch.device(device), dtype, size)
    with pytest.raises(InputError, match=reason):
        best_kernel(torch.device(device), dtype, size)


def test_the_operator_takes_these_arguments():
    """Shapes from torch's meta kernel: (N, H, D) out, (H, N) logsumexp, key heads shared."""
    query = torch.empty(9, 4, 16, device="meta", dtype=torch.bfloat16)
    key = torch.empty(9, 2, 16, device="meta", dtype=torch.bfloat16)
    cu_lengths = torch.empty(3, device="meta", dtype=torch.int32)
    for window in (None, 2):
        out, lse = varlen.torch_varlen(query, key, key, cu_lengths, 9, 0.3, window)
        assert (out.shape, lse.shape, lse.dtype) == (query.shape, (4, 9), torch.float32)


def _fails(*_):
    raise RuntimeError("no kernel image is available for execution on the device\nat line 7")


def _not_finite(*given):
    out, lse = plain_varlen(*given)
    return out / 0.0, lse


@pytest.fixture
def half_on_the_cpu(monkeypatch):
    """Calls go to the CPU with the checks of a GPU of compute capability 9.0; sets what is installed."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    device = torch.device("cpu")
    gpu = types.SimpleNamespace(type="cuda")
    run = varlen.works
    monkeypatch.setattr(varlen, "works", lambda kernel, _, dtype, size: run(kernel, device, dtype, size))
    return lambda *kernels: (monkeypatch.setattr(varlen, "available_kernels", lambda _: kernels), gpu)[1]


def test_a_kernel_that_imports_and_then_fails_is_left_out_with_one_warning(half_on_the_cpu):
    broken, wrong = Kernel("flash-attn 3", _fails), Kernel("flash-attn 2", _not_finite)
    gpu = half_on_the_cpu(broken, wrong, PLAIN)
    with pytest.warns(RuntimeWarning) as warned:
        assert best_kernel(gpu, torch.bfloat16, 64) is PLAIN
    assert [str(one.message) for one in warned] == [
        "flash-attn 3 is left out: no kernel image is available for execution on the device",
        "flash-attn 2 is left out: it gives numbers that are not finite",
    ]
    assert unusable(gpu, torch.bfloat16, 64) is None  # known by now: no further warning


def test_where_every_kernel_fails_the_decomposition_is_unusable(half_on_the_cpu):
    gpu = half_on_the_cpu(Kernel("flash-attn 3", _fails))
    with pytest.warns(RuntimeWarning, match="flash-attn 3 is left out"):
        assert (
            unusable(gpu, torch.float16, 72)
            == "torch.float16 tensors with head size 72, for which every flash kernel here fails"
        )
    with pytest.raises(InputError, match="every flash kernel here fails"):
        best_kernel(gpu, torch.float16, 72)


def test_working_kernels_pass_the_trial():
    assert works(PLAIN, torch.device("cpu"), torch.float16, 40)
