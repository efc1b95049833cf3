"""The GPU decomposition on the CPU: the same composition code over a plain varlen kernel, against the oracle."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.attention.cuda import decomposed as cuda_module
from focus_runtime.attention.cuda.decomposed import FlashCall, Part, merge_parts, pack
from focus_runtime.attention.varlen import PLAIN, Kernel, plain_varlen
from focus_runtime.errors import InputError
from focus_runtime.mask.dense import group_bits, group_numbers, membership_extent, popcount
from focus_runtime.mask.rule import Extent
from tests.runtime.attention.by_keyword import flash_decomposition, reference_attention
from tests.runtime.attention.inputs import INF, assert_same, random_inputs, random_membership

LONGEST = torch.tensor([(1 << 62) - 1])


def test_popcount_and_extent(fresh_seed):
    membership = torch.randint(0, 1 << 62, (3, 50))
    assert popcount(membership).tolist() == [[x.bit_count() for x in row] for row in membership.tolist()]
    assert popcount(LONGEST).tolist() == [62]
    assert membership_extent(torch.tensor([[1, 6, 1 << 62]])) == Extent(63, 2, False)
    assert membership_extent(random_membership(200, groups=5, top_k=2)) == Extent(5, 2, True)
    assert membership_extent(torch.zeros(1, 4, dtype=torch.int64)) == Extent(1, 1, False)  # no token has a group


def test_group_numbers_and_bits():
    membership = torch.tensor([0b1, 0b1010, 1 << 62, 0, (1 << 62) | 1])
    assert group_numbers(membership, 2).tolist() == [[0, -1], [1, 3], [62, -1], [-1, -1], [0, 62]]
    assert group_bits(membership, 4).int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 1], [0] * 4, [0] * 4, [1, 0, 0, 0]]


@pytest.mark.parametrize("categories", [3, 255, 256, 40000])
def test_pack_sorts_stably_and_finds_its_way_back(categories, fresh_seed):
    category = torch.randint(-1, categories, (300, 2))
    packing = pack(category, categories, uniform=False)
    bounds = packing.cu_lengths.tolist()
    assert packing.cu_lengths.dtype == torch.int32
    for number in range(min(categories, 300)):
        entries = slice(bounds[number], bounds[number + 1])
        expected = [t for t, row in enumerate(category.tolist()) for c in row if c == number]
        assert packing.token[entries].tolist() == expected
    assert bounds[-1] == int((category >= 0).sum())
    for j in range(2):
        assert packing.token[packing.slots[:, j]].tolist() == list(range(300))
        assert (packing.rank[packing.slots[:, j]] == j).all()
    assert torch.equal(packing.held, category >= 0)


def ragged(length, *, groups=6, most=2, batch=1):
    """Tokens with 1 to `most` groups each."""
    kept = [random_membership(length, groups=groups, top_k=k, batch=batch) for k in range(1, most + 1)]
    return torch.stack(kept).gather(0, torch.randint(most, (1, batch, length)))[0]


@pytest.mark.parametrize("length", [1, 2, 100])
@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize(("window", "num_sinks"), [(0, 0), (7, 0), (0, 3), (9, 4), (30, 40), (500, 2)])
def test_decomposition_equals_the_oracle(length, top_k, window, num_sinks, fresh_seed):
    inputs = random_inputs(length, batch=2, heads=6, kv_heads=2)
    membership = random_membership(length, groups=5, top_k=top_k, batch=2)
    settings = {"window": window, "num_sinks": num_sinks, "scale": 0.35}
    expected = reference_attention(*inputs, membership, **settings)
    assert_same(flash_decomposition(*inputs, membership, kernel=PLAIN, **settings), expected, 1e-11)
    extent = Extent(5, top_k, True)  # given instead of looked up
    assert_same(flash_decomposition(*inputs, membership, kernel=PLAIN, extent=extent, **settings), expected, 1e-11)


@pytest.mark.parametrize("most", [2, 3, 4])
def test_tokens_with_different_numbers_of_groups(most, fresh_seed):
    inputs, membership = random_inputs(120, batch=2), ragged(120, most=most, batch=2)
    assert not membership_extent(membership).uniform
    settings = {"window": 5, "num_sinks": 3, "scale": 0.35}
    actual = flash_decomposition(*inputs, membership, kernel=PLAIN, **settings)
    assert_same(actual, reference_attention(*inputs, membership, **settings), 1e-11)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_one_group_set_for_all_and_unused_groups(top_k, fresh_seed):
    inputs = random_inputs(60)
    membership = torch.full((1, 60), (1 << top_k) - 1 << 4)
    settings = {"window": 3, "num_sinks": 2, "scale": 0.35}
    actual = flash_decomposition(*inputs, membership, kernel=PLAIN, **settings)
    assert_same(actual, reference_attention(*inputs, membership, **settings), 1e-11)


@pytest.mark.parametrize(("window", "num_sinks"), [(0, 0), (7, 0), (9, 4), (500, 2)])
def test_no_token_has_a_group(window, num_sinks, fresh_seed):
    inputs, membership = random_inputs(100, batch=2, heads=6, kv_heads=2), torch.zeros(2, 100, dtype=torch.int64)
    settings = {"window": window, "num_sinks": num_sinks, "scale": 0.35}
    actual = flash_decomposition(*inputs, membership, kernel=PLAIN, **settings)
    assert_same(actual, reference_attention(*inputs, membership, **settings), 1e-11)


@pytest.mark.parametrize("top_k", [1, 2])
def test_slabs_change_nothing(top_k, fresh_seed, monkeypatch):
    monkeypatch.setattr(cuda_module, "MERGE_ELEMENTS", 500)
    monkeypatch.setattr(cuda_module, "SINK_ELEMENTS", 700)
    inputs, membership = random_inputs(90, batch=2), random_membership(90, top_k=top_k, batch=2)
    settings = {"window": 5, "num_sinks": 3, "scale": 0.35}
    actual = flash_decomposition(*inputs, membership, kernel=PLAIN, **settings)
    assert_same(actual, reference_attention(*inputs, membership, **settings), 1e-11)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_halves(dtype, top_k, fresh_seed):
    """The hiding factors survive 16 bits; the tolerance is the target for values around 1."""
    inputs, membership = random_inputs(150, dim=16, dtype=dtype), random_membership(150, groups=8, top_k=top_k)
    settings = {"window": 17, "num_sinks": 4, "scale": 0.25}
    out, lse = flash_decomposition(*inputs, membership, kernel=PLAIN, **settings)
    assert (out.dtype, lse.dtype) == (dtype, torch.float32)
    expected = reference_attention(*(x.double() for x in inputs), membership, **settings)
    assert_same((out, lse), expected, 1.5e-2)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("scale", [1 / 256, 40.0])
def test_small_and_large_scores_in_fp32(top_k, scale, fresh_seed):
    inputs, membership = random_inputs(100, dtype=torch.float32), random_membership(100, top_k=top_k, groups=5)
    settings = {"window": 9, "num_sinks": 2, "scale": scale}
    expected = reference_attention(*(x.double() for x in inputs), membership, **settings)
    actual = flash_decomposition(*inputs, membership, kernel=PLAIN, **settings)
    assert_same(actual, expected, 5e-6 if scale < 1 else 5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "groups", "blocks_up_to"), [(256, 6, 512), (256, 6, 0), (8, 6, 0), (8, 40, 512)])
@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("window", [0, 1, 63, 64, 100, 129, 500])
def test_near_pairs_in_blocks_or_by_hiding(dim, groups, blocks_up_to, top_k, window, fresh_seed, monkeypatch):
    """Large windows hide pairs in more head dimensions, where a kernel can hold them: not at head size 256."""
    monkeypatch.setattr(cuda_module, "BLOCKS_UP_TO", blocks_up_to)
    monkeypatch.setattr("focus_runtime.attention.decomposed.MOST_PAIRS", 30_000)
    inputs, membership = (
        random_inputs(200, dim=dim, batch=2),
        random_membership(200, groups=groups, top_k=top_k, batch=2),
    )
    settings = {"window": window, "num_sinks": 2, "scale": dim**-0.5}
    actual = flash_decomposition(*inputs, membership, kernel=PLAIN, **settings)
    assert_same(actual, reference_attention(*inputs, membership, **settings), 1e-11)


def test_strided_inputs(fresh_seed):
    inputs = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in random_inputs(70, batch=2)]
    membership = random_membership(70, batch=2)
    settings = {"window": 9, "num_sinks": 2, "scale": 0.35}
    actual = flash_decomposition(*inputs, membership, kernel=PLAIN, **settings)
    assert_same(actual, reference_attention(*inputs, membership, **settings), 1e-11)


def test_stages_are_announced_and_calls_are_few(fresh_seed):
    from contextlib import nullcontext

    seen, calls = [], []

    def stage(name):
        seen.append(name)
        return nullcontext()

    def counted(*arguments):
        calls.append(arguments[-1])  # the window
        return plain_varlen(*arguments)

    for top_k, expected in ((1, [None]), (2, [None, None]), (3, [None])):  # near pairs run in blocks
        seen.clear()
        calls.clear()
        flash_decomposition(
            *random_inputs(70),
            random_membership(70, top_k=top_k),
            kernel=Kernel("counted", counted),
            window=9,
            num_sinks=2,
            scale=0.3,
            stage=stage,
        )
        assert set(seen) == {"sort", "gather", "same_group", "local", "sinks", "merge"}
        assert calls == expected


@pytest.mark.parametrize(("dim", "groups", "scale"), [(256, 3, 0.1), (200, 60, 0.1), (8, 2, 0.0), (8, 2, -1.0)])
def test_what_no_kernel_can_hold_is_refused(dim, groups, scale):
    inputs = random_inputs(6, heads=1, kv_heads=1, dim=dim)
    membership = torch.full((1, 6), 7 << (groups - 3) if groups >= 3 else 1 << (groups - 1))
    with pytest.raises(InputError, match="decomposed"):
        flash_decomposition(*inputs, membership, kernel=PLAIN, window=2, scale=scale)


def test_a_query_whose_pairs_are_all_hidden_has_no_logsumexp(fresh_seed):
    inputs = torch.randn(3, 20, 2, 16).unbind()
    flags = torch.rand(20, 3) < 0.3
    flags[:6, 0] = True
    cu_lengths = torch.tensor([0, 20], dtype=torch.int32)
    call = FlashCall(PLAIN, inputs, torch.ones(1, 20, dtype=torch.int64), Extent(3, 1, True), 0.25)
    out, lse = call.hiding(inputs, flags, flags, cu_lengths, 4)
    place = torch.arange(20)
    distance = place[:, None] - place
    seen = (distance >= 0) & (distance <= 4) & ~(flags[:, None] & flags).any(-1)
    scores = torch.einsum("ihd,jhd->hij", *inputs[:2]).masked_fill(~seen, -INF) * 0.25
    torch.testing.assert_close(lse, torch.logsumexp(scores, -1))
    some = seen.any(-1)
    assert not some[:6].any()
    torch.testing.assert_close(out[some], (torch.softmax(scores, -1) @ inputs[2].transpose(0, 1)).transpose(0, 1)[some])


def test_a_part_counted_twice_is_taken_off(fresh_seed):
    scores, values = torch.randn(7, 3, 12, dtype=torch.float64), torch.randn(12, 5, dtype=torch.float64)

    def part(keys, sign=1):
        some = scores[..., keys]
        return Part(torch.softmax(some, -1) @ values[keys], torch.logsumexp(some, -1).T, sign=sign)

    actual = merge_parts([part(slice(0, 8)), part(slice(5, 12)), part(slice(5, 8), sign=-1)], 7)
    assert_same(actual, (torch.softmax(scores, -1) @ values, torch.logsumexp(scores, -1)), 1e-12)


def test_merge_of_nothing_is_zero_without_nan():
    empty = Part(torch.ones(4, 2, 3), torch.full((2, 4), -INF))
    undefined = Part(
        torch.full((4, 2, 3), float("nan")),
        torch.full((2, 4), float("nan")),
        torch.arange(4),
        torch.zeros(4, dtype=torch.bool),
    )
    out, lse = merge_parts([empty, undefined], 4)
    assert (out == 0).all()
    assert (lse == -INF).all()
