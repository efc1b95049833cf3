"""Triton kernels launched without Triton's look at every argument.

That look takes about 50 us for a kernel of forty arguments, in every layer of a model. Here the compiled kernel is kept
by what it was compiled for: values of compile-time arguments, types and alignment of tensors, and of other whole
numbers whether they are 1, a multiple of 16, or too large for 32 bits.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

MOST_KEPT = 4096
ALIGNED = 16  # bytes of an address, and factor of a number
LARGEST_INT32 = (1 << 31) - 1

_kept: dict[tuple[Any, ...], Any] = {}
_roles: dict[Any, tuple[str, ...]] = {}


def _role(parameter: Any) -> str:
    if parameter.is_constexpr:
        return "fixed"
    return "free" if parameter.do_not_specialize else ""


def _kind(argument: Any, role: str) -> Any:
    """What of an argument a kernel is compiled for."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % ALIGNED == 0
    if role == "fixed":
        return argument
    if isinstance(argument, int):
        if role == "free":
            return argument > LARGEST_INT32
        return argument == 1, argument % ALIGNED == 0, argument > LARGEST_INT32
    if isinstance(argument, float):
        return None
    return argument.base.dtype, tuple(argument.block_shape)  # a tensor descriptor


def launch(kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...], warps: int, stages: int) -> None:
    """Run a kernel over a grid.

    Args:
        kernel: a function under `triton.jit`.
        grid: programs in x, y and z.
        arguments: all of the kernel's, in order, compile-time ones too; the first is a tensor.
        warps, stages: warps of a program, and iterations of a loop in flight.
    """
    roles = _roles.get(kernel)
    if roles is None:  # Triton's interpreter, which compiles nothing, knows no parameters
        roles = _roles[kernel] = tuple(_role(parameter) for parameter in getattr(kernel, "params", ()))
    key = (kernel, arguments[0].get_device(), warps, stages, *map(_kind, arguments, roles))
    compiled = _kept.get(key)
    if compiled is not None:
        compiled[grid](*arguments)
        return
    compiled = kernel[grid](*arguments, num_warps=warps, num_stages=stages)
    if compiled is not None:
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        _kept[key] = compiled
