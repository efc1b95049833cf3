"""The compiled kernel: building, doing without a compiler, and exactness where its tiles and blocks end."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from focus_runtime import native
from focus_runtime.attention import focus_attention, fused
from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.fused import HeadRules, fused_available, fused_step, matrix_tiles_available, step_fits
from focus_runtime.attention.reference import Scoring, attend_allowed
from focus_runtime.config import CONSTANT
from focus_runtime.errors import InputError
from focus_runtime.mask.allowed_pairs import allowed_pairs, token_positions
from focus_runtime.mask.rule import PairRule
from tests.runtime.attention.by_keyword import fused_attention, reference_attention
from tests.runtime.attention.inputs import assert_same, needs_compiler, oracle, random_inputs, random_membership

needs_tiles = pytest.mark.skipif(not matrix_tiles_available(), reason="a processor without bfloat16 matrix tiles")
FP32, BF16 = (torch.float32, False, 5e-6), (torch.bfloat16, False, 1.5e-2)
in_every_way = pytest.mark.parametrize(
    ("dtype", "matrix_tiles", "tolerance"),
    [FP32, BF16, pytest.param(torch.bfloat16, True, 1.5e-2, marks=needs_tiles)],
    ids=["fp32", "bf16", "tiles"],
)


inputs = functools.partial(random_inputs, heads=2, kv_heads=1, dtype=torch.float32)


def close(actual, tensors, membership, tolerance=5e-6, **settings):
    assert_same(actual, oracle(tensors, membership, **settings), tolerance)


@pytest.mark.slow
@needs_compiler
@in_every_way
@pytest.mark.parametrize("mode", ["by class", "dense"])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 33, 65, 255, 257, 600])
@pytest.mark.parametrize(("window", "num_sinks"), [(0, 0), (7, 3), (40, 70)])
def test_lengths_around_tiles_and_blocks(mode, length, window, num_sinks, dtype, matrix_tiles, tolerance, fresh_seed):
    tensors, membership = inputs(length, dim=16, dtype=dtype), random_membership(length, groups=3, top_k=2)
    settings: dict[str, Any] = {"window": window, "num_sinks": num_sinks, "scale": 0.3}
    actual = fused_attention(*tensors, membership, mode=mode, matrix_tiles=matrix_tiles, **settings)
    close(actual, tensors, membership, tolerance, **settings)


@needs_compiler
@in_every_way
@pytest.mark.parametrize("mode", ["by class", "dense"])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize(
    ("length", "reach", "window", "num_sinks"),
    [(90, None, 9, 4), (300, 70, 9, 4), (33, 1, 0, 0), (200, 2, 7, 3), (600, 129, 64, 100), (600, 1000, 9999, 0)],
)
def test_padding_softcap_and_a_layers_own_sliding_window(
    length, reach, window, num_sinks, softcap, padding, mode, dtype, matrix_tiles, tolerance, fresh_seed
):
    """Padding also between real tokens, where no tokenizer pads but a caller may."""
    tensors, membership = inputs(length, dtype=dtype), random_membership(length, groups=3, top_k=2)
    rule, scoring = PairRule(window, num_sinks, reach), Scoring(0.35, softcap)
    real = torch.rand(1, length) > 0.3 if padding else None
    position = token_positions(membership, real)
    allowed = allowed_pairs(membership, membership, position, position, rule)
    allowed = allowed if real is None else allowed & real[:, None]
    expected = attend_allowed(*(x.double() for x in tensors), allowed[:, None], scoring)
    given = (*tensors, membership, rule, scoring, real)
    actual = fused.fused_attention(*given, mode=mode, matrix_tiles=matrix_tiles)
    assert_same(actual, expected, tolerance)


@needs_compiler
@in_every_way
@pytest.mark.parametrize("dim", [8, 24, 40, 64, 128, 256])
def test_head_sizes(dim, dtype, matrix_tiles, tolerance, fresh_seed):
    tensors, membership = inputs(80, dim=dim, dtype=dtype), random_membership(80)
    settings: dict[str, Any] = {"window": 9, "num_sinks": 4, "scale": dim**-0.5}
    actual = fused_attention(*tensors, membership, matrix_tiles=matrix_tiles, **settings)
    close(actual, tensors, membership, tolerance, **settings)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_the_number_of_threads_changes_nothing(threads, dtype, monkeypatch, fresh_seed):
    tensors, membership = inputs(300, dtype=dtype), random_membership(300, top_k=2)
    one = fused_attention(*tensors, membership, window=9, num_sinks=2, scale=0.35, mode="by class")
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    more = fused_attention(*tensors, membership, window=9, num_sinks=2, scale=0.35, mode="by class")
    assert torch.equal(one[0], more[0])
    assert torch.equal(one[1], more[1])


@needs_tiles
@pytest.mark.parametrize("dim", [8, 40, 64, 96, 256])
@pytest.mark.parametrize("mode", ["by class", "dense"])
def test_tiles_sum_what_vectors_sum(dim, mode, fresh_seed):
    """Both ways multiply the same bfloat16 numbers; only the weights are rounded for the second product of tiles."""
    tensors, membership = (
        inputs(700, queries=650, heads=3, dim=dim, dtype=torch.bfloat16),
        random_membership(700, top_k=2),
    )
    settings: dict[str, Any] = {"window": 30, "num_sinks": 5, "scale": dim**-0.5, "mode": mode}
    tiles, vectors = (fused_attention(*tensors, membership, matrix_tiles=on, **settings) for on in (True, False))
    torch.testing.assert_close(tiles[1], vectors[1], rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(tiles[0], vectors[0], rtol=1.6e-2, atol=1e-2)
    assert not torch.equal(tiles[1], vectors[1])  # the tiles really ran


@needs_compiler
@in_every_way
@pytest.mark.parametrize(("scale", "num_sinks"), [(30.0, 1), (1e-4, 0), (-0.3, 2)])
def test_scores_far_apart_near_and_reversed(scale, num_sinks, dtype, matrix_tiles, tolerance, fresh_seed):
    """Scores from -300 to 300: weights underflow to nothing, and never to NaN."""
    tensors, membership = inputs(200, dtype=dtype), random_membership(200)
    settings: dict[str, Any] = {"window": 5, "num_sinks": num_sinks, "scale": scale}
    out, lse = fused_attention(*tensors, membership, mode="by class", matrix_tiles=matrix_tiles, **settings)
    expected, expected_lse = reference_attention(*(x.double() for x in tensors), membership, **settings)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-5, atol=1e-3)
    most = max(tolerance, 1e-3)
    torch.testing.assert_close(out.double(), expected, rtol=most, atol=most)


@needs_tiles
def test_tiles_leave_torch_as_it_was(fresh_seed):
    """Torch's kernels configure the same tiles, and count the smallest numbers in full."""
    left, right = torch.randn(2, 512, 512).bfloat16()
    before, tiny = left @ right, torch.full((64,), 1e-40)
    for _ in range(3):
        fused_attention(
            *inputs(300, dtype=torch.bfloat16), random_membership(300), window=9, scale=0.35, mode="by class"
        )
        assert torch.equal(left @ right, before)
        assert (tiny * 0.5 > 0).all()


@needs_compiler
@pytest.mark.parametrize("softcap", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("mode", ["auto", "step"])
def test_saturated_softcap(softcap, mode, fresh_seed):
    """Scores far beyond the cap on both sides, where its exponential would overflow."""
    tensors, membership = inputs(70, queries=3, dim=16), random_membership(70)
    settings: dict[str, Any] = {"window": 5, "num_sinks": 1, "scale": 60.0, "softcap": softcap}
    close(fused_attention(*tensors, membership, mode=mode, **settings), tensors, membership, 2e-5, **settings)


@needs_compiler
@pytest.mark.parametrize("name", ["query", "key"])
def test_softcap_hides_no_nan(name, fresh_seed):
    query, key, value = inputs(40)
    {"query": query, "key": key}[name][0, 0, 20, 3] = float("nan")
    with pytest.raises(InputError, match=name):
        focus_attention(query, key, value, random_membership(40), window=5, softcap=5.0, backend="fused")


@needs_compiler
def test_by_class_with_more_classes_than_it_takes_runs_dense(fresh_seed):
    tensors, membership = inputs(1500, heads=1), random_membership(1500, groups=60, top_k=5)
    assert membership.unique().numel() > 1024
    settings: dict[str, Any] = {"window": 9, "num_sinks": 1, "scale": 0.35}
    close(fused_attention(*tensors, membership, mode="by class", **settings), tensors, membership, **settings)


@needs_compiler
@torch.no_grad()
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-6), (torch.bfloat16, 1.5e-2)])
@pytest.mark.parametrize("queries", [1, 3, 8])
@pytest.mark.parametrize("growth", [CONSTANT, (20, 100)])
def test_a_step_of_heads_that_differ(growth, queries, dtype, tolerance, softcap, fresh_seed):
    """Each key-value head by its own groups and window, or with everything, in buffers longer than the text."""
    length, heads = 150, HeadRules([1, 0, 2, 1], [1, 0, 0], [4, 30, 2**62], (1, 2))
    query = torch.randn(2, 8, queries, 32).to(dtype)
    room = [torch.randn(2, 4, 200, 32).to(dtype) for _ in range(2)]
    key, value = (x[:, :, :length] for x in room)
    buffer = torch.zeros(2, 2, 200, dtype=torch.int64)
    buffer[:, 0, :length], buffer[:, 1, :length] = random_membership(length), random_membership(length, top_k=2)
    groups = buffer[..., :length].transpose(0, 1)
    assert step_fits(query, key, value)
    clock = StageClock()
    given = (heads, PairRule(0, 3, growth=growth), Scoring(0.3, softcap), clock)
    actual = fused_step(query, *room, groups, *given, key_length=length).transpose(1, 2)
    assert torch.equal(actual, fused_step(query, key, value, groups, *given).transpose(1, 2))
    assert actual.dtype == dtype
    assert set(clock.seconds) == {"sort", "same_group"}
    for head, (plane, window) in enumerate([(0, 30), (1, 4), (0, length), (0, 30)]):
        tensors = (query[:, 2 * head : 2 * head + 2], key[:, head : head + 1], value[:, head : head + 1])
        settings: dict[str, Any] = {"window": window, "num_sinks": 3, "scale": 0.3, "softcap": softcap}
        settings["growth"] = growth
        expected, _ = reference_attention(*(x.double() for x in tensors), groups[plane], **settings)
        got = actual[:, 2 * head : 2 * head + 2].double()
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


DIFFERENT = HeadRules([0, 1, -1, 2, 1, 3, 0, 4], [1, 0, 0, 1, 2], [4, 30, 2**62, 0, 9], (2, 1, 0))
TOLERANCE = {torch.float32: 5e-6, torch.bfloat16: 1.5e-2}


def all_but_left_out(tensors, membership, real, rule, scoring):
    """By query head that is not left out, its place and what it should return, in float64."""
    query, key, value = (x.double() for x in tensors)
    position = token_positions(membership[0], real)
    for head, setting in enumerate(DIFFERENT.head.tolist()):
        if setting >= 0:
            own = membership[DIFFERENT.plane[setting]]
            own_rule = replace(rule, window=min(int(DIFFERENT.window[setting]), query.shape[2]))
            allowed = allowed_pairs(own, own, position, position, own_rule) & (True if real is None else real[:, None])
            kv = head * key.shape[1] // query.shape[1]
            one = (query[:, head : head + 1], key[:, kv : kv + 1], value[:, kv : kv + 1])
            yield head, attend_allowed(*one, allowed[:, None], scoring)[0]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("length", "case"),
    [
        *((length, case) for length in (33, 270) for case in ("padding", "softcap", "sliding", "growing")),
        (700, "plain"),
    ],
)
def test_heads_that_differ_in_one_call(length, case, dtype, fresh_seed):
    """Each query head by its own groups and window, some dense, some by class; one is left out."""
    query = torch.randn(2, 8, length, 16).to(dtype)
    key, value = (torch.randn(2, 4, length, 16).to(dtype) for _ in range(2))
    groups = torch.stack([random_membership(length, top_k=k).expand(2, -1) for k in DIFFERENT.top_ks.tolist()])
    real = torch.rand(2, length) > 0.3 if case == "padding" else None
    reach, scoring = 50 if case == "sliding" else None, Scoring(0.3, 2.0 if case == "softcap" else None)
    clock = StageClock()
    rule = PairRule(0, 3, reach, (20, 200) if case == "growing" else CONSTANT)
    given = (query, key, value, groups, rule, scoring, real)
    actual, _ = fused.fused_attention(*given, clock=clock, heads=DIFFERENT)
    assert set(clock.seconds) == {"sort", "local", "same_group"}
    for head, expected in all_but_left_out((query, key, value), groups, real, rule, scoring):
        got = actual[:, head : head + 1].double()
        torch.testing.assert_close(got, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_without_a_compiler_everything_still_runs(broken_library, fresh_seed):
    broken_library.setattr(native, "COMPILERS", ("no-such-compiler",))
    broken_library.setattr(native, "PACKAGED", "no-such-package")
    tensors, membership = inputs(64), random_membership(64)
    assert not fused_available()
    assert "no-such-compiler" in fused.fused_reason()
    out = focus_attention(*tensors, membership, window=5)
    settings: dict[str, Any] = {"window": 5, "scale": 8**-0.5}
    expected = reference_attention(*(x.double() for x in tensors), membership, **settings)[0]
    torch.testing.assert_close(out.double(), expected, rtol=5e-6, atol=5e-6)
    with pytest.raises(InputError, match="compiler"):
        focus_attention(*tensors, membership, window=5, backend="fused")


@pytest.mark.long
@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="instruction sets of x86-64")
@pytest.mark.parametrize("instructions", ["x86-64", "x86-64-v3"])
def test_narrower_vectors_are_exact_too(instructions, broken_library, tmp_path, fresh_seed):
    """4 and 8 lanes, where this machine may have 16."""
    flags = tuple(flag for flag in native.FLAGS if not flag.startswith("-march"))
    broken_library.setattr(native, "FLAGS", (*flags, f"-march={instructions}"))
    broken_library.setattr("focus_runtime.files.default_cache_dir", lambda: tmp_path)
    assert fused_available(), fused.fused_reason()
    for dim, dtype in ((64, torch.float32), (40, torch.float32), (64, torch.bfloat16)):
        tensors, membership = inputs(300, dim=dim, dtype=dtype), random_membership(300, top_k=2)
        settings: dict[str, Any] = {"window": 20, "num_sinks": 3, "scale": dim**-0.5}
        tolerance = 5e-6 if dtype == torch.float32 else 1.5e-2
        for mode in ("by class", "dense"):
            close(
                fused_attention(*tensors, membership, mode=mode, **settings), tensors, membership, tolerance, **settings
            )
        step = (tensors[0][:, :, -2:], *tensors[1:])
        close(fused_attention(*step, membership, **settings), step, membership, tolerance, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "backends", [["decomposed", "fused"], pytest.param(["masked"], marks=pytest.mark.long)], ids=" and ".join
)
def test_peak_memory_is_linear_in_the_text(backends):
    """Growth of the peak at three lengths, in a process for each; a T x T array would grow fourfold each time."""
    script = """
import os, resource, sys, torch
from focus_runtime.attention import focus_attention
from focus_runtime.attention.fused import fused_available
fused_available()
torch.set_num_threads(1)
def run(length):
    q, k, v = (torch.randn(1, 1, length, 8) for _ in range(3))
    focus_attention(q, k, v, 1 << torch.randint(8, (1, length)), window=16, num_sinks=4, backend=backend)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for backend in sys.argv[1:]:
    child = os.fork()
    if not child:
        print(*(run(length) for length in (64, 4096, 8192, 16384)), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    backends = [backend for backend in backends if backend != "fused" or fused_available()]
    plain = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}  # else the peak shows how freed blocks are kept
    done = subprocess.run(
        [sys.executable, "-c", script, *backends], capture_output=True, text=True, check=True, env=plain
    )
    for peaks in done.stdout.splitlines():
        start, small, middle, large = map(int, peaks.split())  # kB
        assert large - start < 128_000  # 16,384 x 16,384 bytes alone would be 262,144 kB
        assert large - middle < 3 * max(middle - small, 4_000)  # as bits they would grow by 24,576 kB
    assert len(done.stdout.splitlines()) == len(backends)
