"""The gathering path of a decode step against the float64 reference, and that it reads only what it attends to."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.attention import choose_backend, focus_attention
from tests.runtime.attention.by_keyword import decode_attention, reference_attention
from tests.runtime.attention.inputs import FP32, assert_same, needs_compiler, oracle


def inputs(heads, key_heads, length_q, length_k, *, batch=1, groups=8, top_k=1, dtype=torch.float32, scale=1.0):
    query = torch.randn(batch, heads, length_q, 16).to(dtype) * scale
    key, value = (torch.randn(batch, key_heads, length_k, 16).to(dtype) for _ in range(2))
    chosen = torch.rand(batch, length_k, groups).topk(top_k, dim=-1).indices
    return query, key, value, torch.bitwise_left_shift(torch.ones_like(chosen), chosen).sum(-1)


@pytest.mark.parametrize("length_q", [1, 3, 9])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (4, 1)])
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("gather_below", [1.0, 0.3])
def test_gathered_attention_is_the_reference(length_q, heads, top_k, softcap, gather_below, fresh_seed):
    tensors = inputs(*heads, length_q, 150, batch=2, top_k=top_k, scale=2.0)
    settings = {"window": 7, "num_sinks": 3, "scale": 0.2, "softcap": softcap}
    actual = decode_attention(*tensors, gather_from=0, gather_below=gather_below, **settings)
    assert_same(actual, oracle(tensors[:3], tensors[3], **settings), FP32)


@pytest.mark.parametrize("length_q", [1, 4])
@pytest.mark.parametrize("side", ["left", "right", "all"])
def test_padding_of_each_row(length_q, side, fresh_seed):
    """Sinks count from the first real token; a query that is padding sees what the reference lets it see."""
    tensors = inputs(4, 2, length_q, 90, batch=3)
    padding = torch.ones(3, 90, dtype=torch.bool)
    for row, count in enumerate((0, 11, 90 if side == "all" else 30)):
        padding[row, slice(0, count) if side != "right" else slice(90 - count, None)] = False
    settings = {"window": 3, "num_sinks": 2, "key_padding": padding, "scale": 0.25}
    actual = decode_attention(*tensors, gather_from=0, gather_below=1.0, **settings)
    assert_same(actual, oracle(tensors[:3], tensors[3], **settings), FP32)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.bfloat16, 1.5e-2), (torch.float16, 2e-3), (torch.float64, 1e-12)])
def test_dtypes(dtype, atol, fresh_seed):
    tensors = inputs(8, 2, 1, 400, dtype=dtype)
    settings = {"window": 20, "num_sinks": 4, "scale": 0.25}
    out, lse = decode_attention(*tensors, **settings)
    assert out.dtype == dtype
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected, expected_lse = oracle(tensors[:3], tensors[3], **settings)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=0, atol=1e-4 if dtype != torch.float64 else 1e-12)


def test_many_chunks_of_gathered_rows(monkeypatch, fresh_seed):
    monkeypatch.setattr("focus_runtime.attention.decode.CHUNK_BYTES", 1)
    tensors = inputs(4, 2, 2, 2000, groups=4)
    settings = {"window": 10, "num_sinks": 1, "scale": 0.25}
    out, _ = decode_attention(*tensors, gather_from=0, gather_below=1.0, **settings)
    torch.testing.assert_close(out.double(), oracle(tensors[:3], tensors[3], **settings)[0], rtol=0, atol=5e-6)


@pytest.mark.parametrize("length_q", [1, 2])
@pytest.mark.parametrize("backend", ["decode", pytest.param("fused", marks=needs_compiler)])
def test_keys_that_may_not_be_seen_are_not_read(backend, length_q, fresh_seed):
    """The cost follows the tokens attended: NaN anywhere else does no harm."""
    query, key, value, membership = inputs(4, 2, length_q, 2000)
    settings = {"window": 5, "num_sinks": 2}
    clean = focus_attention(query, key, value, membership, backend=backend, **settings)
    seen = ((membership[:, -length_q:, None] & membership[:, None, :]) != 0).any(dim=1)[0]
    seen[-5 - length_q :] = True
    seen[:2] = True
    assert 0.1 < seen.float().mean() < 0.4
    key[:, :, ~seen], value[:, :, ~seen] = torch.nan, torch.nan
    assert torch.equal(focus_attention(query, key, value, membership, backend=backend, **settings), clean)


def test_gradients_are_the_references(fresh_seed):
    tensors = inputs(4, 2, 2, 60, dtype=torch.float64)
    for tensor in tensors[:3]:
        tensor.requires_grad_(True)
    settings = {"window": 3, "num_sinks": 1, "scale": 0.25}
    gradients = []
    for run, extra in ((decode_attention, {"gather_from": 0, "gather_below": 1.0}), (reference_attention, {})):
        out, lse = run(*tensors, **settings, **extra)
        gradients.append(torch.autograd.grad(out.square().sum() + lse.sin().sum(), tensors[:3]))
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    ("length_q", "length_k", "chosen"),
    [(1, 4000, "decode"), (1, 2, "decode"), (16, 4000, "decode"), (17, 4000, "masked"), (1, 1, "masked")],
)
def test_auto_takes_this_path_for_few_queries_over_more_keys(length_q, length_k, chosen, monkeypatch):
    monkeypatch.setattr("focus_runtime.attention.dispatch.fused_runs", lambda *_: False)
    query, key = torch.empty(1, 2, length_q, 16), torch.empty(1, 2, length_k, 16)
    assert choose_backend(query, key, torch.randint(1, 16, (1, length_k)), window=128) == chosen
