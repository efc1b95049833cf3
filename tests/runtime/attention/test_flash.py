"""Attention with logsumexp on CUDA, without a GPU: torch's operators are replaced by their definitions, which ask for
what the operators ask for. On a GPU the operators themselves are tested by test_on_gpu.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from focus_runtime.attention import decomposed_backward, flash
from focus_runtime.routing.router import top_k_membership
from tests.runtime.attention.by_keyword import differentiable_attention, reference_attention, straight_through_attention
from tests.runtime.attention.inputs import random_membership

LONG, DOUBLE = torch.int64, torch.float64


def assert_aligned(*by_token):
    for x in by_token:
        assert x.stride(-1) == 1
        assert x.shape[-1] % 8 == 0


def scores_of(query, key, scale, allowed):
    """Scaled scores (..., H, b, t) of (..., b, H, D) and (..., t, H, D), -inf where not allowed; all in float64."""
    scores = torch.einsum("...ihd,...jhd->...hij", query.double(), key.double()) * scale
    return scores.masked_fill(~allowed, float("-inf"))


def causal_pairs(rows, keys):
    return torch.ones(rows, keys, dtype=torch.bool).tril()


def softmax_gradients(grad, query, key, value, out, lse, scores, scale):
    """Gradients given output and logsumexp, which may be those of a softmax over more keys."""
    weights = torch.exp(scores - lse.double()[..., None])
    through = torch.einsum("...ihd,...jhd->...hij", grad.double(), value.double())
    delta = (grad.double() * out.double()).sum(-1).transpose(-1, -2)[..., None]
    by_score = weights * (through - delta) * scale
    return (
        torch.einsum("...hij,...jhd->...ihd", by_score, key.double()).to(query.dtype),
        torch.einsum("...hij,...ihd->...jhd", by_score, query.double()).to(key.dtype),
        torch.einsum("...hij,...ihd->...jhd", weights, grad.double()).to(value.dtype),
    )


def efficient_pairs(query, key, bias, custom_mask_type):
    assert_aligned(query, key)
    assert query.shape[2] == key.shape[2], "heads are not shared"
    assert query.shape[0] <= flash.LARGEST_BATCH
    pairs = causal_pairs(query.shape[1], key.shape[1]) if custom_mask_type == 1 else torch.tensor(True)
    if bias is not None:
        assert custom_mask_type == 0
        assert bias.dtype == query.dtype
        assert bias.shape == (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
        assert bias.stride(-1) == 1
        assert bias.stride(-2) % 8 == 0
        pairs = bias == 0
    return pairs


def efficient_forward(query, key, value, bias, cq, ck, mq, mk, dropout, custom_mask_type, with_lse, *, scale):
    assert (cq, ck, mq, mk, dropout, with_lse) == (None, None, None, None, 0.0, True)
    scores = scores_of(query, key, scale, efficient_pairs(query, key, bias, custom_mask_type))
    out = torch.einsum("bhij,bjhd->bihd", torch.softmax(scores, -1), value.double())  # NaN without keys
    lse = torch.logsumexp(scores, -1).to(torch.float32 if query.dtype != DOUBLE else DOUBLE)
    lse = torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 32), value=float("inf"))
    return out.to(query.dtype), lse, None, None, query.shape[1], key.shape[1]


def efficient_backward(
    grad,
    query,
    key,
    value,
    bias,
    out,
    cq,
    ck,
    rows,
    keys,
    lse,
    dropout,
    seed,
    offset,
    custom_mask_type,
    by_bias,
    *,
    scale,
):
    assert (cq, ck, dropout, by_bias) == (None, None, 0.0, False)
    assert (rows, keys) == (query.shape[1], key.shape[1])
    assert lse.is_contiguous()
    assert lse.shape == (*query.shape[:1], query.shape[2], rows + -rows % 32)
    assert (seed.dtype, offset.dtype) == (LONG, LONG)
    assert_aligned(grad, out, value)
    scores = scores_of(query, key, scale, efficient_pairs(query, key, bias, custom_mask_type))
    return *softmax_gradients(grad, query, key, value, out, lse[..., :rows], scores, scale), None


def by_sequence(bounds, max_length, shares, *tensors):
    """The tensors of each packed sequence, key heads repeated."""
    assert bounds.dtype == torch.int32
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        assert stop - start <= max_length
        yield slice(start, stop), [x[start:stop].repeat_interleave(n, 1) for x, n in zip(tensors, shares, strict=True)]


def varlen_forward(query, key, value, bounds, _, longest, __, dropout, causal, debug, *, scale):
    assert (dropout, causal, debug) == (0.0, True, False)
    assert query.dtype in (torch.float16, torch.bfloat16)
    assert_aligned(query, key, value)
    out, lse = torch.empty_like(query), torch.empty(query.shape[1], query.shape[0])
    r = query.shape[1] // key.shape[1]
    for rows, (q, k, v) in by_sequence(bounds, longest, (1, r, r), query, key, value):
        scores = scores_of(q, k, scale, causal_pairs(len(q), len(q)))
        out[rows] = torch.einsum("hij,jhd->ihd", torch.softmax(scores, -1), v.double()).to(out.dtype)
        lse[:, rows] = torch.logsumexp(scores, -1).float()
    return out, lse, None, None, None


def varlen_backward(grad, query, key, value, out, lse, bounds, _, longest, __, dropout, causal, state, ___, *, scale):
    assert (dropout, causal, state.dtype, state.shape) == (0.0, True, torch.uint64, (2,))
    assert_aligned(grad, query, key, value, out)
    assert lse.is_contiguous()
    grads = [torch.empty_like(x) for x in (query, key, value)]
    r = query.shape[1] // key.shape[1]
    for rows, (g, q, k, v, o) in by_sequence(bounds, longest, (1, 1, r, r, 1), grad, query, key, value, out):
        scores = scores_of(q, k, scale, causal_pairs(len(q), len(q)))
        found = softmax_gradients(g, q, k, v, o, lse[:, rows], scores, scale)
        grads[0][rows] = found[0]
        for target, heads in zip(grads[1:], found[1:], strict=True):
            target[rows] = heads.unflatten(1, (-1, r)).float().sum(2).to(target.dtype)
    return grads


@pytest.fixture
def as_on_cuda(monkeypatch):
    """CPU tensors take the way of CUDA tensors, to operators that are definitions; how often each was called."""
    calls: dict[str, int] = {}

    def counted(operator):
        def call(*args, **kwargs):
            calls[operator.__name__] = calls.get(operator.__name__, 0) + 1
            return operator(*args, **kwargs)

        return call

    monkeypatch.setattr(flash, "_on_cuda", lambda query: True)
    monkeypatch.setattr(flash, "_efficient_forward", counted(efficient_forward))
    monkeypatch.setattr(flash, "_efficient_backward", counted(efficient_backward))
    monkeypatch.setattr(flash, "_flash_forward", counted(varlen_forward))
    monkeypatch.setattr(flash, "_flash_backward", counted(varlen_backward))
    monkeypatch.setattr(decomposed_backward, "fused_runs", lambda *_: False)
    return calls


def leaves(length, *, batch=2, heads=4, kv_heads=2, dim=12, dtype=DOUBLE):
    shapes = [(batch, length, count, dim) for count in (heads, kv_heads, kv_heads)]
    return [torch.randn(shape, dtype=DOUBLE).to(dtype).transpose(1, 2).requires_grad_() for shape in shapes]


def gradients(out, upstream, inputs):
    return torch.autograd.grad((out * upstream.to(out.dtype)).sum(), inputs)


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "kv_heads", "dim", "top_k"), [(4, 4, 8, 1), (4, 2, 12, 2), (3, 1, 5, 3)])
@pytest.mark.parametrize(("window", "num_sinks"), [(0, 0), (17, 2), (1000, 1)])
def test_both_passes_equal_the_oracle(heads, kv_heads, dim, top_k, window, num_sinks, as_on_cuda, fresh_seed):
    inputs = leaves(150, heads=heads, kv_heads=kv_heads, dim=dim)
    membership = random_membership(150, groups=5, top_k=top_k, batch=2)
    upstream = torch.randn(inputs[0].shape, dtype=DOUBLE)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "scale": 0.35}
    out, lse = differentiable_attention(*inputs, membership, **settings)
    expected, expected_lse = reference_attention(*inputs, membership, **settings)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)  # the logsumexp is fp32, as the operator's
    torch.testing.assert_close(lse, expected_lse, rtol=1e-6, atol=1e-6)
    for actual, exact in zip(gradients(out, upstream, inputs), gradients(expected, upstream, inputs), strict=True):
        torch.testing.assert_close(actual, exact, rtol=1e-4, atol=1e-5)
    assert set(as_on_cuda) == {"efficient_forward", "efficient_backward"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("top_k", [1, 2])
def test_half_precision_runs_groups_in_flash_attention(dtype, top_k, as_on_cuda, fresh_seed):
    inputs, membership = leaves(150, dtype=dtype), random_membership(150, groups=5, top_k=top_k, batch=2)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    upstream = torch.randn(inputs[0].shape)
    settings: dict[str, Any] = {"window": 17, "num_sinks": 2, "scale": 0.35}
    actual = gradients(differentiable_attention(*inputs, membership, **settings)[0], upstream, inputs)
    expected = gradients(reference_attention(*exact, membership, **settings)[0], upstream, exact)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other, rtol=3e-2, atol=6e-2)
    assert as_on_cuda["varlen_forward"] == as_on_cuda["varlen_backward"] > 0


def test_routers_get_their_gradient(as_on_cuda, monkeypatch, fresh_seed):
    """The same numbers as by the CPU's kernels, which test_decomposed_backward.py holds to the dense definition."""
    inputs = leaves(130)
    probabilities = torch.softmax(2 * torch.randn(2, 130, 5, dtype=DOUBLE), -1).requires_grad_()
    upstream, tensors = torch.randn(inputs[0].shape, dtype=DOUBLE), [*inputs, probabilities]
    settings: dict[str, Any] = {"top_k": 2, "window": 9, "num_sinks": 2, "scale": 0.35}

    def both():
        return gradients(straight_through_attention(*inputs, probabilities, **settings), upstream, tensors)

    actual = both()
    monkeypatch.setattr(flash, "_on_cuda", lambda query: False)
    for one, other in zip(actual, both(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert top_k_membership(probabilities.detach(), 2).shape == (2, 130)


def test_precisions_without_a_kernel_are_said(monkeypatch):
    monkeypatch.setattr(flash, "_on_cuda", lambda query: query.device.type == "meta")
    asked = {
        dtype: flash.has_backward(torch.empty(1, dtype=dtype, device="meta")) for dtype in (torch.bfloat16, DOUBLE)
    }
    assert asked == {torch.bfloat16: True, DOUBLE: False}
    assert flash.has_backward(torch.empty(1, dtype=DOUBLE))
