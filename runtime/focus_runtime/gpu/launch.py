"""Triton kernels launched without Triton's look at every argument, which takes 50 us and more in every layer.

A caller says in `facts` what its call has in common with others: everything that Triton compiles for, which is values
of compile-time arguments, types and alignment of tensors, and of other whole numbers whether they are 1 or multiples
of 16, unless the kernel says `do_not_specialize`. Kernels compiled for a call are then kept for all that are alike.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

MOST_KEPT = 4096  # kinds of calls: each length of a text is one of its own
ALIGNED = 16  # bytes of an address, and factor of a number

_kept: dict[tuple[Any, ...], Launches] = {}


class Launches:
    """Kernels of calls that are alike, compiled at the first of them.

    Attributes:
        numbers: kept for the caller, who fills it at the first call with what calls that are alike share.
    """

    __slots__ = ("_compiled", "numbers")

    def __init__(self) -> None:
        self.numbers: Any = None
        self._compiled: dict[str, Any] = {}

    def run(
        self, name: str, kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...], warps: int, stages: int
    ) -> None:
        """Run a kernel over a grid, on the current device.

        Args:
            name: of the kernel among those of the call.
            kernel: a function under `triton.jit`.
            grid: programs in x, y and z.
            arguments: all of the kernel's, in order, compile-time ones too.
            warps, stages: warps of a program, and iterations of a loop in flight.
        """
        compiled = self._compiled.get(name)
        if compiled is None:
            compiled = kernel[grid](*arguments, num_warps=warps, num_stages=stages)
            if compiled is not None:  # Triton's interpreter compiles nothing
                self._compiled[name] = compiled
        else:
            compiled[grid](*arguments)


def alike(*facts: Any) -> Launches:
    """The kernels of calls with these facts.

    Args:
        facts: hashable, see above; the first names the caller.
    """
    found = _kept.get(facts)
    if found is None:
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        found = _kept[facts] = Launches()
    return found


def aligned(*tensors: Tensor) -> tuple[bool, ...]:
    """Which tensors begin at an address that whole rows can be read from at once."""
    return tuple(tensor.data_ptr() % ALIGNED == 0 for tensor in tensors)


def tiles_of(number: int, size: int) -> int:
    """How many tiles hold so many rows; Triton's own function of the kind takes microseconds.

    Args:
        number: of rows.
        size: rows of a tile.
    """
    return -(-number // size)


def power_of_two(number: int) -> int:
    """The least power of two that is not below a number, 1 at least.

    Args:
        number: 0 or more.
    """
    return 1 << max(0, number - 1).bit_length()
