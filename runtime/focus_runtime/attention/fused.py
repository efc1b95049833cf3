"""The fused CPU kernel of fused.cpp, called through ctypes.

Where there is no compiler to build it, `fused_available()` is False and the torch backends do the work.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from focus_runtime.attention.clock import StageClock
from focus_runtime.attention.reference import Scoring
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import PairRule
from focus_runtime.native import library

ELEMENTS = {torch.float32: 0, torch.bfloat16: 1}
MODES = {"auto": 0, "by class": 1, "dense": 2, "step": 3}
STEP_QUERIES = 8  # at most; more fill the vector lanes of a tile


# `FocusProblem` of fused.cpp: addresses of query, key, value, out, lse, membership and real; three strides each of
# query, key and value; batch, query_heads, key_heads, query_length, key_length, head_size, window, num_sinks, reach,
# grow_first, grow_last; scale, softcap; local_cost, dense_cost, copy_cost; element, mode, threads, matrix_tiles;
# parallel; head_setting, setting_plane, setting_window, told_apart, settings, plane_stride, batch_stride; seconds.
# Packing them takes a third of the time that a `ctypes.Structure` takes, which matters in a decode step.
_PROBLEM = struct.Struct("@7P9q11q2f3d4i4P4q3d")


class FusedCosts(NamedTuple):
    """Costs in the kernel over that of a pair in its pass by class, see `by_class_is_faster` of fused.cpp."""

    local: float
    dense: float
    copy: float


IN_VECTORS = FusedCosts(local=1.2, dense=1.1, copy=100.0)  # fitted by benchmarks/fit_costs.py
# Matrix tiles make a pair cheap and leave masks and copies what they were: read off 8 settings on a Xeon with AMX
# (LOG.md, 2026-11-23).
IN_TILES = FusedCosts(local=3.4, dense=1.4, copy=170.0)


class HeadRules:
    """Which keys the heads of one layer see, by setting.

    Args:
        heads: (Hkv) number of each key-value head's setting, or (Hq) of each query head's; outside steps a negative one
            leaves the head out.
        planes: (S) number of each setting's groups among those that are given.
        windows: (S) w of each setting; a number beyond the text for full attention.
        top_ks: k of each plane of groups.
    """

    def __init__(self, heads: list[int], planes: list[int], windows: list[int], top_ks: Sequence[int]) -> None:
        self.top_ks = torch.tensor(top_ks, dtype=torch.int64)
        self.head, self.plane, self.window = (torch.tensor(x, dtype=torch.int64) for x in (heads, planes, windows))
        self.addresses = (self.head.data_ptr(), self.plane.data_ptr(), self.window.data_ptr())


@functools.cache
def _gomp_parallel() -> int | None:
    """Address of GOMP_parallel in the OpenMP library this process already runs on, None where there is none."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    loaded = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "libgomp" in line}
    if len(loaded) != 1:  # two libraries have two pools of threads, and only one is torch's
        return None
    try:
        function = ctypes.CDLL(loaded.pop()).GOMP_parallel
    except (AttributeError, OSError):
        return None
    return ctypes.cast(function, ctypes.c_void_p).value


def fused_available() -> bool:
    """True when the fused kernel is compiled or can be compiled here (the first call takes some seconds)."""
    return library()[0] is not None


def fused_reason() -> str:
    """Why the fused kernel is not available; empty when it is."""
    return library()[1]


def matrix_tiles_available() -> bool:
    """True where the fused kernel multiplies bf16 in the processor's matrix tiles (AMX)."""
    functions, _ = library()
    return functions is not None and bool(functions.focus_matrix_tiles())


def fused_fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """True for the inputs the kernel takes: CPU, fp32 or bf16, head size a multiple of 8 and contiguous."""
    dtype = query.dtype
    return (  # a decode step asks this for every layer
        key.dtype == dtype
        and value.dtype == dtype
        and dtype in ELEMENTS
        and key.shape == value.shape
        and query.shape[3] % 8 == 0
        and query.stride(3) == key.stride(3) == value.stride(3) == 1
        and query.device.type == "cpu"
    )


def fused_runs(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel takes these, and is here."""
    return fused_fits(query, key, value) and fused_available()


def _problem(
    arrays: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    real: Tensor | None,
    rule: PairRule,
    scoring: Scoring,
    mode: str,
    matrix_tiles: bool,
    by_head: HeadRules | None = None,
    key_length: int | None = None,
) -> ctypes.Array[ctypes.c_char]:
    """What the kernel is called with. It holds addresses only: the caller keeps the tensors."""
    query, key, value = arrays[:3]
    batch, heads, length, size = query.shape
    key_heads, keys = key.shape[1], key.shape[2] if key_length is None else key_length
    addresses = (*(x.data_ptr() for x in arrays), 0 if real is None else real.data_ptr())
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3])
    sizes = (batch, heads, key_heads, length, keys, size)
    pairs = (min(rule.window, keys), min(rule.num_sinks, keys), min(rule.sliding_window or keys, keys), *rule.growth)
    scores = (scoring.scale, scoring.softcap or 0.0)
    in_tiles = matrix_tiles and query.dtype == torch.bfloat16 and matrix_tiles_available()
    costs = IN_TILES if in_tiles else IN_VECTORS
    how = (ELEMENTS[query.dtype], MODES[mode], torch.get_num_threads(), matrix_tiles, _gomp_parallel() or 0)
    settings: tuple[int, ...] = (0, 0, 0, key_heads, 1, 0, keys)
    if by_head is not None:
        settings = (*by_head.addresses, len(by_head.head), len(by_head.window), *arrays[5].stride()[:2])
    seconds = (0.0, 0.0, 0.0)
    problem = ctypes.create_string_buffer(_PROBLEM.size)
    _PROBLEM.pack_into(problem, 0, *addresses, *strides, *sizes, *pairs, *scores, *costs, *how, *settings, *seconds)
    return problem


def _seconds(function: Callable[[Any], int], problem: ctypes.Array[ctypes.c_char]) -> tuple[float, ...]:
    """Run the kernel; what it spent on planning, on the local pass and on the rest."""
    if function(problem) != 0:
        raise MemoryError("the fused CPU kernel ran out of memory")
    return _PROBLEM.unpack_from(problem)[-3:]


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    rule: PairRule,
    scoring: Scoring,
    key_padding: Tensor | None = None,
    *,
    mode: str = "auto",
    matrix_tiles: bool = True,
    clock: StageClock | None = None,
    heads: HeadRules | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention by the fused kernel: any k, padding, softcap and Tq <= Tk.

    Args:
        rule: window, sinks and the layer's own sliding window; with the latter, all keys of the text are given.
        mode: "by class" walks tokens with the same groups together, "dense" masks every pair, "step" reads each
            query's keys where they lie, for decoding; "auto" estimates.
        matrix_tiles: multiply bf16 in the processor's matrix tiles (AMX) where it has them, except by "step".
        clock: adds the seconds of "sort" (planning), "local" (with sinks) and "same_group" (all pairs when dense).
        heads: settings of heads that differ, planned and run together: windows in place of the rule's, and membership
            (P, B, Tk). Rows of heads that are left out are undefined in the output.

    Returns:
        out (B, Hq, Tq, D) in the query's dtype, a transposed view of (B, Tq, Hq, D); logsumexp (B, Hq, Tq) fp32.
    """
    if not fused_fits(query, key, value):
        raise InputError(
            f"backend 'fused' does not fit {query.dtype} on {query.device} with head size {query.shape[3]}",
            expected="fp32 or bf16 on the CPU, head size a multiple of 8, its numbers side by side",
            fix='use backend="auto"',
        )
    functions, reason = library()
    if functions is None:
        raise InputError("the fused CPU kernel is not available: " + reason, fix='use backend="auto"')
    batch, num_heads, length, size = query.shape
    out = torch.empty(batch, length, num_heads, size, dtype=query.dtype)
    lse = torch.empty(batch, num_heads, length)
    real = None if key_padding is None else key_padding.to(torch.uint8).contiguous()
    arrays = (query, key, value, out, lse, membership.contiguous())  # the problem points into them and into `real`
    problem = _problem(arrays, real, rule, scoring, mode, matrix_tiles, heads)
    few = length <= STEP_QUERIES and length < key.shape[2] and size % 16 == 0
    step = mode == "step" or (mode == "auto" and few and heads is None)
    spent = _seconds(functions.focus_step_cpu if step else functions.focus_attention_cpu, problem)
    if clock is not None:
        for name, seconds in zip(("sort", "local", "same_group"), spent, strict=True):
            clock.add(name, seconds)
    return out.transpose(1, 2), lse


def fused_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    membership: Tensor,
    heads: HeadRules,
    rule: PairRule,
    scoring: Scoring,
    clock: StageClock,
    groups: ctypes.Array[ctypes.c_char] | None = None,
    key_length: int | None = None,
) -> Tensor:
    """A decode step of all heads of a layer in one call, whatever sees what; `step_fits` says whether it can be.

    Args:
        membership: (P, B, Tk) int64 bit sets, its last dimension contiguous.
        rule: sinks and how windows grow; the windows are those of the settings.
        clock: adds the seconds of "sort" (finding keys) and "same_group" (attending to them).
        groups: a `DecodeStep` of decode_step.cpp, which first decides the new token's groups and writes them into the
            membership; None where it has them.
        key_length: the first of the Tk positions that exist; all of them when None.

    Returns:
        (B, Tq, Hq, D).
    """
    functions, _ = library()
    assert functions is not None, "step_fits asks for it"
    batch, query_heads, length, size = query.shape
    out, lse = query.new_empty(batch, length, query_heads, size), torch.empty(batch, query_heads, length)
    arrays = (query, key, value, out, lse, membership)
    problem = _problem(arrays, None, rule, scoring, "step", False, heads, key_length)
    if groups is None:
        sort, _, attend = _seconds(functions.focus_step_cpu, problem)
    else:
        sort, _, attend = _seconds(lambda step: functions.focus_decode_cpu(groups, step), problem)
    clock.add("sort", sort)
    clock.add("same_group", attend)
    return out


def step_fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether `fused_step` takes these: few queries that `fused_fits`, a head size of whole vectors, no gradient."""
    few = query.shape[2] <= STEP_QUERIES and query.shape[3] % 16 == 0 and not torch.is_grad_enabled()
    return few and fused_runs(query, key, value)
