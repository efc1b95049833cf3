"""Triton kernels launched without Triton's look at every argument, which takes 50 us and more in every layer.

A caller says in `facts` what its call has in common with others: everything that Triton compiles for, which is values
of compile-time arguments, types and alignment of tensors, and of other whole numbers whether they are 1 or multiples
of 16, unless the kernel says `do_not_specialize`. Kernels compiled for a call are then kept for all that are alike.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from torch import Tensor

from focus_runtime.gpu.launcher import launcher, prepared

MOST_KEPT = 4096  # kinds of calls: each length of a text is one of its own
ALIGNED = 16  # bytes of an address, and factor of a number
ALL_ALIGNED = ()  # of `aligned` and `multiples`: nearly always so

_kept: dict[tuple[Any, ...], Launches] = {}


class _Compiled(NamedTuple):
    """A kernel that was compiled and loaded.

    Attributes:
        kernel: as Triton keeps it.
        launch, prepared: the function of launcher.c, and what it is given first; None where Triton launches it.
    """

    kernel: Any
    launch: Any
    prepared: Any


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
        self,
        name: str,
        kernel: Any,
        grid: tuple[int, int, int],
        arguments: tuple[Any, ...],
        warps: int,
        stages: int,
        registers: int | None = None,
    ) -> None:
        """Run a kernel over a grid, on the current device.

        Args:
            name: of the kernel among those of the call.
            kernel: a function under `triton.jit`.
            grid: programs in x, y and z.
            arguments: all of the kernel's, in order, compile-time ones too; the first is a tensor.
            warps, stages: warps of a program, and iterations of a loop in flight.
            registers: of a thread at most; None for as many as the compiler takes.
        """
        known = self._compiled.get(name)
        if known is None:
            compiled = kernel[grid](*arguments, **compile_options(warps, stages, registers))
            if compiled is not None:  # Triton's interpreter compiles nothing
                self._compiled[name] = _loaded(compiled)
            return
        launch = known.launch
        if launch is not None and not _observed():
            stream = _driver().active.get_current_stream(arguments[0].device.index)
            if launch(known.prepared, *grid, stream, arguments):
                return
        known.kernel[grid](*arguments)  # which also makes a context for a thread that has none


def compile_options(warps: int, stages: int, registers: int | None = None) -> dict[str, Any]:
    """What Triton compiles a kernel with, see `Launches.run`.

    A product and a sum become one instruction, as in every kernel that was timed: Triton 3.9 warns where this is left
    out, and says that 3.10 will then compile two.
    """
    limit = {} if registers is None else {"maxnreg": registers}
    return {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True, **limit}


def _loaded(compiled: Any) -> _Compiled:
    given = prepared(compiled)
    return _Compiled(compiled, None if given is None else launcher().launch, given)


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
