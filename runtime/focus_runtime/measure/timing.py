"""Timing protocol: warm-up, synchronised repeats, median and spread, peak memory."""

from __future__ import annotations

import ctypes
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from focus_runtime.attention.costs import FROM_TOKENS, machine_costs
from focus_runtime.attention.fused import fused_available, fused_reason, matrix_tiles_available
from focus_runtime.composition.attach import FocusModel
from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.devices import compute_devices, dtype_name, processor_family, processor_name

MODES = ("full", "focus")
WARM_UP_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated milliseconds: median, extremes and how many."""

    median: float
    low: float
    high: float
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise at least one value."""
        return cls(statistics.median(values), min(values), max(values), len(values))


def synchronise(*devices: torch.device) -> None:
    """Wait for GPUs, so that a clock read next covers their work."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def milliseconds(work: Callable[[], Any], device: torch.device) -> float:
    """Wall time of one call, waiting for the GPU."""
    synchronise(device)
    start = time.perf_counter()
    work()
    synchronise(device)
    return (time.perf_counter() - start) * 1000


def in_turn(works: Mapping[str, Callable[[], Any]], repeats: int, device: torch.device) -> dict[str, Spread]:
    """Milliseconds of several works taking turns, so that a drift of the machine's speed hits all.

    Each is called `repeats` times after a call that warms up.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats + 1):
        for name, work in works.items():
            spent = milliseconds(work, device)
            if repeat:
                times[name].append(spent)
    return {name: Spread.of(values) for name, values in times.items()}


def attending(focus: FocusModel, mode: str) -> AbstractContextManager[Any]:
    """Full attention as torch has it ("full") or Focus ("focus") while the block runs."""
    return focus.measured_full_attention() if mode == "full" else nullcontext()


Result = TypeVar("Result")


def timed_by_stage(focus: FocusModel, mode: str, work: Callable[[], Result]) -> tuple[Result, float]:
    """What a call of the model gives by full attention ("full") or Focus ("focus"), and how many seconds it took.

    A GPU's stages are timed in a call of their own, the first: the events about them, a dozen in a layer of Focus and
    two in one of full attention, cost the host time, for which a GPU with a short text or a small model waits.
    Seconds of the stages are in `focus.seconds`.
    """
    devices = compute_devices(focus.model)
    focus.reset_seconds()
    clock = focus.seconds
    with attending(focus, mode):
        if stages_apart(devices):
            work()
            focus.reset_seconds(timed=False)
        try:
            synchronise(*devices)
            start = time.perf_counter()
            result = work()
            synchronise(*devices)
            seconds = time.perf_counter() - start
        finally:
            focus.seconds = clock
    return result, seconds


def stages_apart(devices: Sequence[torch.device]) -> bool:
    """Whether to time stages slows a pass down."""
    return any(device.type == "cuda" for device in devices)


def timed_pass(focus: FocusModel, ids: Tensor, mode: str) -> tuple[Tensor, float]:
    """`timed_by_stage` of a pass over (1, T) ids; gives the last hidden state (1, T, d)."""
    return timed_by_stage(focus, mode, lambda: final_hidden(focus.model, ids))


def both_passes(focus: FocusModel, ids: Tensor) -> None:
    """A pass over (1, T) ids by full attention and one by Focus."""
    with torch.no_grad():
        for mode in MODES:
            timed_pass(focus, ids, mode)


def warm_up(focus: FocusModel, ids: Tensor) -> None:
    """Both kinds of pass, so that the first one timed is like the rest.

    On the CPU they read the beginning of the text, on a GPU all of it: kernels are chosen and compiled by length there.
    """
    if ids.device.type == "cpu" and ids.shape[1] >= FROM_TOKENS:
        machine_costs(getattr(torch, dtype_name(focus.model)))  # measured now, so that no timed pass includes it
    beginning = ids[:, :WARM_UP_TOKENS] if ids.device.type == "cpu" else ids
    both_passes(focus, beginning)


def reset_peak_memory(device: torch.device) -> bool:
    """Start the peak over. False where the system cannot: the peak is then that of the whole process so far."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)  # else memory freed earlier is used again and the peak does not show it
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_memory_bytes(module: nn.Module) -> int:
    """Most memory used since `reset_peak_memory`: that of the allocator on every GPU that the module computes on, else
    this process's resident size."""
    devices = compute_devices(module)
    return sum(map(peak_bytes, [device for device in devices if device.type == "cuda"] or devices[:1]))


def peak_bytes(device: torch.device) -> int:
    """As `peak_memory_bytes`, by device."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    except (OSError, StopIteration):
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return int(peak if sys.platform == "darwin" else peak * 1024)


def machine(device: str = "cpu") -> dict[str, Any]:
    """What the numbers depend on."""
    fused = f"not available: {fused_reason()}"
    if fused_available():
        fused = "compiled, bfloat16 in matrix tiles" if matrix_tiles_available() else "compiled"
    facts = {
        "cpu": processor_name(),
        "family": processor_family(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "fused_kernel": fused,
    }
    if device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cuda"] = torch.version.cuda
    return facts


def peak_growth(work: Callable[[], Any], device: torch.device) -> int | None:
    """Bytes the peak rises while something runs; None where the system cannot start the peak over."""
    if not reset_peak_memory(device):
        return None
    before = peak_bytes(device)
    work()
    return max(0, peak_bytes(device) - before)
