"""Whether this project's Triton kernels run here: tried where they are first needed, left out with one warning."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from focus_runtime.errors import first_line
from focus_runtime.failures import is_lost_gpu, is_out_of_memory

HALVES = (torch.float16, torch.bfloat16)
OLDEST = (8, 0)  # compute capability
LARGEST_HEAD = 256

Result = TypeVar("Result")
_failed: set[tuple[object, ...]] = set()


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed, as it is with torch for CUDA on Linux."""
    return importlib.util.find_spec("triton") is not None


@functools.cache
def on_gpu(device: torch.device) -> bool:
    """Whether this is a GPU that Triton's kernels are written for."""
    if device.type != "cuda" or torch.version.hip is not None or not has_triton():
        return False
    return torch.cuda.get_device_capability(device) >= OLDEST


def kernels_take(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether attention kernels in Triton take tensors of this type there.

    Args:
        device, dtype: of query, key and value.
    """
    return dtype in HALVES and on_gpu(device)


def takes_hidden(hidden: Tensor) -> bool:
    """Whether kernels that read hidden states (B, T, E) take these."""
    return (
        on_gpu(hidden.device)
        and not torch.is_grad_enabled()
        and hidden.is_contiguous()
        and hidden.dtype in (*HALVES, torch.float32)
    )


def attention_fits(what: str, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a kernel takes such tensors and has not failed for their like.

    Args:
        what: name of the kernel, as given to `tried`.
        query: (B, Hq, Tq, D); key, value: (B, Hkv, Tk, D).
    """
    return (
        kernels_take(query.device, query.dtype)
        and query.dtype == key.dtype == value.dtype
        and query.shape[3] <= LARGEST_HEAD
        and query.stride(3) == key.stride(3) == value.stride(3) == 1
        and not (_failed and _like(what, query) in _failed)
    )


def tried(what: str, tensor: Tensor, run: Callable[[], Result]) -> Result | None:
    """What a kernel gives, or None where it fails, which is warned of once for each type and size.

    Args:
        what: its name.
        tensor: (..., D) the first that it takes.
        run: the call. Running out of memory, or losing the GPU, is no failure of the kernel and is raised.
    """
    if _failed and _like(what, tensor) in _failed:
        return None
    try:
        if not _several_gpus() or tensor.device.type != "cuda" or tensor.device.index == torch.cuda.current_device():
            return run()
        with torch.cuda.device(tensor.device):  # kernels run on the current GPU
            return run()
    except Exception as error:  # compilers and drivers raise exceptions of any type
        if is_out_of_memory(error) or is_lost_gpu(error):
            raise
        _failed.add(_like(what, tensor))
        warnings.warn(f"{what} in Triton is left out: {first_line(error)}", RuntimeWarning, stacklevel=2)
        return None


@functools.cache
def _several_gpus() -> bool:
    """Whether tensors may be on another GPU than the current one."""
    return torch.cuda.device_count() > 1


def _like(what: str, tensor: Tensor) -> tuple[object, ...]:
    return what, tensor.device, tensor.dtype, tensor.shape[-1]
