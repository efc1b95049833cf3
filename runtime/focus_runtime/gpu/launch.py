"""Triton kernels launched without Triton's look at every argument, which takes 50 us and more in every layer.

A caller says in `facts` what its call has in common with others: everything that Triton compiles for, which is values
of compile-time arguments, types and alignment of tensors, and of other whole numbers whether they are 1 or multiples
of 16, unless the kernel says `do_not_specialize`. Kernels compiled for a call are then kept for all that are alike.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from torch import Tensor

MOST_KEPT = 4096  # kinds of calls: each length of a text is one of its own
ALIGNED = 16  # bytes of an address, and factor of a number
DIRECT = ("3.6", "3.7")  # versions of Triton whose compiled kernels are run as `Launches.run` does it
ALL_ALIGNED = ()  # of `aligned` and `multiples`: nearly always so

_kept: dict[tuple[Any, ...], Launches] = {}


class _Compiled(NamedTuple):
    """A kernel that was compiled and loaded.

    Attributes:
        kernel: as Triton keeps it.
        run, function, metadata: its launcher, and what that is given first; None where the version is another one.
    """

    kernel: Any
    run: Any = None
    function: Any = None
    metadata: Any = None


class Launches:
    """Kernels of calls that are alike, compiled at the first of them.

    Attributes:
        numbers: kept for the caller, who fills it at the first call with what calls that are alike share.
    """

    __slots__ = ("_compiled", "numbers")

    def __init__(self) -> None:
        self.numbers: Any = None
        self._compiled: dict[str, _Compiled] = {}

    def run(
        self, name: str, kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...], warps: int, stages: int
    ) -> None:
        """Run a kernel over a grid, on the current device.

        Args:
            name: of the kernel among those of the call.
            kernel: a function under `triton.jit`.
            grid: programs in x, y and z.
            arguments: all of the kernel's, in order, compile-time ones too; the first is a tensor.
            warps, stages: warps of a program, and iterations of a loop in flight.
        """
        known = self._compiled.get(name)
        if known is None:
            compiled = kernel[grid](*arguments, num_warps=warps, num_stages=stages)
            if compiled is not None:  # Triton's interpreter compiles nothing
                self._compiled[name] = _loaded(compiled)
            return
        if known.run is None or _observed():
            known.kernel[grid](*arguments)
            return
        stream = _driver().active.get_current_stream(arguments[0].device.index)
        known.run(*grid, stream, known.function, known.metadata, None, None, None, *arguments)


def _loaded(compiled: Any) -> _Compiled:
    import triton

    if not triton.__version__.startswith(tuple(f"{version}." for version in DIRECT)):
        return _Compiled(compiled)
    return _Compiled(compiled, compiled.run, compiled.function, compiled.packed_metadata)


def _observed() -> bool:
    """Whether somebody, such as a profiler, is told of every launch: Triton's own way tells them."""
    runtime = _knobs().runtime
    return bool(_listeners(runtime.launch_enter_hook) or _listeners(runtime.launch_exit_hook))


def _listeners(hook: Any) -> Any:
    return getattr(hook, "calls", hook)


@functools.cache
def _driver() -> Any:
    from triton.runtime import driver

    return driver


@functools.cache
def _knobs() -> Any:
    from triton import knobs

    return knobs


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
    """Which tensors begin at an address that whole rows can be read from at once; nothing where all do.

    Args:
        tensors: of a call, as many in each that is alike.
    """
    together = 0
    for tensor in tensors:
        together |= tensor.data_ptr()
    return tuple(tensor.data_ptr() % ALIGNED == 0 for tensor in tensors) if together % ALIGNED else ALL_ALIGNED


def multiples(*numbers: int) -> tuple[tuple[bool, bool], ...]:
    """What Triton compiles for of whole numbers: which are multiples of 16, and which are 1; nothing where all are
    multiples.

    Args:
        numbers: of a call, as many in each that is alike.
    """
    together = 0
    for number in numbers:
        together |= number
    return tuple((number % ALIGNED == 0, number == 1) for number in numbers) if together % ALIGNED else ALL_ALIGNED


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
