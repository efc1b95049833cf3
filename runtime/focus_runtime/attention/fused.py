"""The fused CPU kernel of fused.cpp: compiled once with the machine's own C++ compiler, then called through ctypes.

Nothing else needs a compiler: where there is none, `fused_available()` is False and the torch backends do the work.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
from pathlib import Path

import torch
from torch import Tensor

from focus_runtime.attention import costs
from focus_runtime.attention.scoring import Scoring
from focus_runtime.clock import StageClock
from focus_runtime.errors import InputError
from focus_runtime.files import replacing
from focus_runtime.mask.rule import PairRule

SOURCE = Path(__file__).with_name("fused.cpp")
NATIVE = "-march=native"
FLAGS = ("-O3", NATIVE, "-std=c++17", "-fPIC", "-shared", "-pthread")
COMPILERS = ("c++", "g++", "clang++")
ELEMENTS = {torch.float32: 0, torch.bfloat16: 1}
MODES = {"auto": 0, "by class": 1, "dense": 2, "step": 3}
STEP_QUERIES = 8  # at most; more fill the vector lanes of a tile
BUILD_SECONDS = 120


class _Problem(ctypes.Structure):
    """`FocusProblem` of fused.cpp, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "out", "lse", "membership", "real")),
        *((name + "_stride", ctypes.c_int64 * 3) for name in ("query", "key", "value")),
        *((name, ctypes.c_int64) for name in ("batch", "query_heads", "key_heads", "query_length", "key_length")),
        *((name, ctypes.c_int64) for name in ("head_size", "window", "num_sinks")),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
        *((name, ctypes.c_double) for name in ("local_cost", "dense_cost", "copy_cost")),
        *((name, ctypes.c_int32) for name in ("element", "mode", "threads")),
        ("parallel", ctypes.c_void_p),
        ("seconds", ctypes.c_double * 3),
    )


def _cpu_identity() -> bytes:
    """What `-march=native` depends on: a cache on a shared home folder may serve different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        import platform

        return f"{platform.machine()} {platform.processor()} {platform.version()}".encode()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})).encode()


def _build(folder: Path) -> Path:
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise OSError("no C++ compiler was found (looked for " + ", ".join(COMPILERS) + ")")
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=BUILD_SECONDS, check=True).stdout
    key = hashlib.sha256(b"\0".join((SOURCE.read_bytes(), " ".join(FLAGS).encode(), version, _cpu_identity())))
    target = folder / f"focus-attention-{key.hexdigest()[:20]}.so"
    if target.is_file():
        return target
    with replacing(target, explain=None, mode=0o755) as fresh:
        for flags in (FLAGS, tuple(flag for flag in FLAGS if flag != NATIVE)):  # some compilers know no "native"
            command = [compiler, *flags, str(SOURCE), "-o", str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
            if done.returncode == 0:
                break
        else:
            raise OSError(f"{compiler} failed: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
    return target


@functools.cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """The compiled kernel, or None and the reason there is none. Compiled at most once per machine and version."""
    from focus_runtime.files import default_cache_dir

    try:
        library = ctypes.CDLL(str(_build(default_cache_dir() / "kernels")))
    except (OSError, subprocess.SubprocessError) as error:
        return None, str(error)
    for function in (library.focus_attention_cpu, library.focus_step_cpu):
        function.argtypes = [ctypes.POINTER(_Problem)]
        function.restype = ctypes.c_int
    return library, ""


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
    return _load()[0] is not None


def fused_reason() -> str:
    """Why the fused kernel is not available; empty when it is."""
    return _load()[1]


def fused_fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """True for the inputs the kernel takes: CPU, fp32 or bf16, head size a multiple of 8 and contiguous.

    Args:
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D).
    """
    if key.dtype != query.dtype or value.dtype != query.dtype or key.shape != value.shape:
        return False
    contiguous = all(x.stride(3) == 1 for x in (query, key, value))
    return query.device.type == "cpu" and query.dtype in ELEMENTS and query.shape[3] % 8 == 0 and contiguous


def _problem(
    arrays: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
    real: Tensor | None,
    rule: PairRule,
    scoring: Scoring,
    mode: str,
) -> _Problem:
    """What the kernel is called with. It holds addresses only: the caller keeps the tensors.

    Args:
        arrays: query, key, value, out, lse and membership.
        real: (B, Tk) uint8, 1 for real tokens; None where all are.
        rule: window and sinks.
        scoring: scale and softcap.
        mode: of `fused_attention`.
    """
    query, key, value = arrays[:3]
    batch, heads, length, size = query.shape
    return _Problem(
        *(x.data_ptr() for x in arrays),
        0 if real is None else real.data_ptr(),
        *((ctypes.c_int64 * 3)(*x.stride()[:3]) for x in (query, key, value)),
        batch,
        heads,
        key.shape[1],
        length,
        key.shape[2],
        size,
        min(rule.window, key.shape[2]),
        min(rule.num_sinks, key.shape[2]),
        scoring.scale,
        scoring.softcap or 0.0,
        costs.FUSED_LOCAL,
        costs.FUSED_DENSE,
        costs.FUSED_COPY,
        ELEMENTS[query.dtype],
        MODES[mode],
        torch.get_num_threads(),
        _gomp_parallel(),
    )


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
    clock: StageClock | None = None,
) -> tuple[Tensor, Tensor]:
    """Focus attention by the fused kernel: any k, padding, softcap and Tq <= Tk.

    Args:
        query: (B, Hq, Tq, D), the last Tq of the Tk positions; key, value: (B, Hkv, Tk, D).
        membership: (B, Tk) int64 bit sets.
        rule: window and sinks.
        scoring: scale and softcap.
        key_padding: (B, Tk) bool, True for real tokens.
        mode: "by class" walks tokens with the same groups together, "dense" masks every pair, "step" reads each
            query's keys where they lie, for decoding; "auto" estimates.
        clock: adds the seconds of "sort" (planning), "local" (with sinks) and "same_group" (all pairs when dense).

    Returns:
        out (B, Hq, Tq, D) in the query's dtype, a transposed view of (B, Tq, Hq, D); logsumexp (B, Hq, Tq) fp32.
    """
    if not fused_fits(query, key, value):
        raise InputError(
            f"backend 'fused' does not fit {query.dtype} on {query.device} with head size {query.shape[3]}",
            expected="fp32 or bf16 on the CPU, head size a multiple of 8, its numbers side by side",
            fix='use backend="auto"',
        )
    library, reason = _load()
    if library is None:
        raise InputError("the fused CPU kernel is not available: " + reason, fix='use backend="auto"')
    batch, heads, length, size = query.shape
    out = torch.empty(batch, length, heads, size)
    lse = torch.empty(batch, heads, length)
    real = None if key_padding is None else key_padding.to(torch.uint8).contiguous()
    arrays = (query, key, value, out, lse, membership.contiguous())  # the problem points into them and into `real`
    problem = _problem(arrays, real, rule, scoring, mode)
    few = length <= STEP_QUERIES and length < key.shape[2] and size % 16 == 0
    step = mode == "step" or (mode == "auto" and few)
    run = library.focus_step_cpu if step else library.focus_attention_cpu
    if run(ctypes.byref(problem)) != 0:
        raise MemoryError("the fused CPU kernel ran out of memory")
    if clock is not None:
        for name, seconds in zip(("sort", "local", "same_group"), problem.seconds, strict=True):
            clock.add(name, seconds)
    return out.to(query.dtype).transpose(1, 2), lse
