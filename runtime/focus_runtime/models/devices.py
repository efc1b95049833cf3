"""What this machine can compute on, and in which precision a model runs there."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from focus_runtime.config import DTYPES
from focus_runtime.errors import DeviceError, ModelError

AUTO = "auto"
SPLIT = "split"  # the name of this placement, where a device is named
GPU_SHARE = 0.8  # of a GPU's free memory for weights; keys, values and intermediate results need the rest


def native_dtype(device: str | torch.device = "cpu") -> str:
    """The narrowest type a frozen model runs in without being emulated: "bfloat16" or "float32".

    A processor without bf16 instructions multiplies bf16 matrices in a plain loop, some 95 times as slow as float32.
    """
    kind = torch.device(device).type
    if kind == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif kind == "cpu":
        native = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    else:
        native = False
    return "bfloat16" if native else "float32"


def dtype_name(model: nn.Module) -> str:
    """Type of the model's first parameter, such as "float32"."""
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def execution_device(module: nn.Module) -> torch.device:
    """The device a module computes on; its weights may be kept elsewhere until then."""
    for part in module.modules():
        device = getattr(getattr(part, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(device)
    return next(module.parameters()).device


def input_device(model: nn.Module) -> torch.device:
    """The device on which a model takes token ids and gives logits."""
    return execution_device(model)


def compute_devices(model: nn.Module) -> list[torch.device]:
    """Every device that a model computes on, that of its inputs first."""
    placed = [input_device(model)]
    if hasattr(model, "hf_device_map"):
        placed += [execution_device(module) for module in model.modules() if hasattr(module, "_hf_hook")]
    return list(dict.fromkeys(placed))


def device_names(model: nn.Module) -> str:
    """What a run records as its device: "cuda:0", or "cuda:0 + cuda:1" for a model on several."""
    return " + ".join(map(str, compute_devices(model)))


def stored_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, values) of every parameter, once; also of those that accelerate keeps elsewhere."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    for name, parameter in model.named_parameters():
        if parameter.device.type != "meta":
            yield name, parameter
        elif name not in tied:  # its other name has been listed
            path, _, own = name.rpartition(".")
            yield name, model.get_submodule(path)._hf_hook.weights_map[own]  # type: ignore[union-attr, index]


def split_model(model: Any, *, device_map: Mapping[str, Any] | None = None, offload_folder: str | None = None) -> None:
    """Spread a model's layers over all GPUs, evenly, and leave in main memory what they cannot hold.

    Layers in main memory compute on the first GPU, which receives their weights for every pass. `device_map`: device of
    each module by name, as in accelerate; made to fit the GPUs' free memory when None.
    """
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory, get_max_memory

    if device_map is None:
        whole = {"no_split_module_classes": list(model._no_split_modules or ())}
        free = {name: size if name == "cpu" else int(size * GPU_SHARE) for name, size in get_max_memory().items()}
        device_map = infer_auto_device_map(model, max_memory=get_balanced_memory(model, free, **whole), **whole)
    chosen = dict(device_map)
    if "disk" in chosen.values() and offload_folder is None:
        raise ModelError(
            f"{type(model).__name__} does not fit into this machine's GPUs and main memory together",
            fix="choose a smaller model, or a narrower precision",
        )
    dispatch_model(
        model,
        device_map=chosen,
        offload_dir=offload_folder,
        skip_keys=getattr(model, "_skip_keys_device_placement", None),
        force_hooks=True,
    )


@dataclass(frozen=True, slots=True)
class Device:
    """A processor or graphics card, named as torch calls it; the memory is None where the system does not say."""

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
    name = requested
    if requested != SPLIT and requested not in listed:
        try:
            kind, index = torch.device(requested).type, torch.device(requested).index
        except RuntimeError:
            known = "auto, cpu, cuda, cuda:N, mps or split"
            raise DeviceError(f"device {requested!r} is unknown", expected=known) from None
        name = f"cuda:{index or 0}" if kind == "cuda" else kind
    if name in listed:
        return listed[name]
    raise DeviceError(
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
