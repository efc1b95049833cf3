"""What this machine can compute on, and in which precision a model runs there."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from focus_runtime.config import DTYPES
from focus_runtime.errors import DeviceError
from focus_runtime.models.device_map import SPLIT
from focus_runtime.models.precision import native_dtype

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Device:
    """A processor or graphics card.

    Attributes:
        name: as torch calls it: cpu, cuda:0, mps.
        label: make and model, for people.
        memory_bytes: of the whole device, None where the system does not say.
        dtypes: precisions that a model can run in there.
    """

    name: str
    label: str
    memory_bytes: int | None
    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model runs and in which precision: names, no longer "auto"."""

    device: str
    dtype: str


def devices() -> list[Device]:
    """Every device torch can use on this machine, the CPU first."""
    listed = [Device("cpu", processor_name(), _main_memory(), ("float32", "bfloat16"))]
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        name = f"cuda:{index}"
        dtypes = tuple(dtype for dtype in DTYPES if dtype != "bfloat16" or native_dtype(name) == "bfloat16")
        listed.append(Device(name, properties.name, properties.total_memory, dtypes))
    if torch.backends.mps.is_available():
        listed.append(Device("mps", "Apple GPU", None, ("float32", "float16")))
    gpus = [device for device in listed if device.name.startswith("cuda")]
    if gpus:
        memory = sum(device.memory_bytes or 0 for device in gpus)
        count = "1 GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
        listed.append(Device(SPLIT, f"{count} and main memory", memory, gpus[0].dtypes))
    return listed


def place(device: str = AUTO, dtype: str = AUTO) -> Placement:
    """Choose the device and the precision that were left to "auto", and check those that were named.

    "auto" is the first CUDA device, in bfloat16 or, where it has no instructions for that, in float32. Without CUDA it
    is the CPU in float32.

    Args:
        device: auto, cpu, cuda, cuda:N, mps, or split for a model larger than one GPU.
        dtype: auto, float32, bfloat16 or float16.

    Raises:
        DeviceError: this machine has no such device, or the device no such precision.
    """
    chosen = _device(device)
    if dtype == AUTO:
        native = "bfloat16" if chosen.name.startswith(("cuda", SPLIT)) and "bfloat16" in chosen.dtypes else "float32"
        return Placement(chosen.name, native)
    if dtype not in DTYPES:
        raise DeviceError(f"dtype {dtype!r} is unknown", expected=" or ".join((AUTO, *DTYPES)))
    if dtype not in chosen.dtypes:
        raise DeviceError(
            f"{chosen.name} ({chosen.label}) does not compute in {dtype}",
            expected=" or ".join(chosen.dtypes),
            fix="leave the precision to auto",
        )
    return Placement(chosen.name, dtype)


@cache
def processor_name() -> str:
    """Make and model of the CPU."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()


def processor_family() -> str:
    """Make and widest instructions of the CPU, such as "amd-avx512" or "intel-amx": what its speed depends on most."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    makes = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
    make = next((name for vendor, name in makes.items() if vendor in text), platform.machine() or "unknown")
    capability = "amx" if "amx_tile" in text else torch.backends.cpu.get_cpu_capability().lower()
    return f"{make}-{capability}"


def _device(requested: str) -> Device:
    listed = {device.name: device for device in devices()}
    if requested == AUTO:
        return listed.get("cuda:0", listed["cpu"])
    if requested == SPLIT and SPLIT not in listed:
        raise _unavailable(SPLIT, listed)
    if requested in listed:
        return listed[requested]
    try:
        kind, index = torch.device(requested).type, torch.device(requested).index
    except RuntimeError:
        raise DeviceError(
            f"device {requested!r} is unknown", expected="auto, cpu, cuda, cuda:N, mps or split"
        ) from None
    name = f"cuda:{index or 0}" if kind == "cuda" else kind
    if name in listed:
        return listed[name]
    raise _unavailable(requested, listed)


def _unavailable(requested: str, listed: Iterable[str]) -> DeviceError:
    return DeviceError(
        f"device {requested} is not available: {_missing(requested.partition(':')[0])}",
        expected=" or ".join((AUTO, *listed)),
        fix="leave the device to auto",
    )


def _missing(kind: str) -> str:
    if kind == "cuda" and torch.cuda.is_available():
        count = torch.cuda.device_count()
        return f"this machine has {count} CUDA device{'s' if count > 1 else ''}, counted from 0"
    if kind in ("cuda", SPLIT) and torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} was built without CUDA"
    if kind in ("cuda", SPLIT):
        return "no NVIDIA GPU or no driver for it was found"
    return f"this machine has no {kind}"


def _main_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
