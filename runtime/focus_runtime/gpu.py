"""Triton kernels on a GPU: whether they run here, and how they are launched; and torch's attention without cuDNN's.

Triton looks at every argument of a launch, which takes 50 us and more in every layer, and asks the driver about every
pointer. Here a caller says in `facts` what its call has in common with others: everything that Triton compiles for,
which is values of compile-time arguments, types and alignment of tensors, and of other whole numbers whether they are 1
or multiples of 16, unless the kernel says `do_not_specialize`. Kernels compiled for a call are then kept for all that
are alike, and launched by the few lines of csrc/launcher.c. These are built by what Triton builds its own with; where
that fails, or a kernel has arguments that are not known here, Triton launches it.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from focus_runtime.errors import first_line
from focus_runtime.failures import is_lost_gpu, is_out_of_memory

SOURCE = Path(__file__).with_name("csrc") / "launcher.c"
DRIVER = "libcuda.so.1"
NAME = "focus_launcher"
# Of an argument's type in Triton: how it is handed over, and what the compiled kernel declares it as.
KINDS = {"i32": ("i", "u32"), "i64": ("q", "u64"), "fp32": ("f", "f32"), "constexpr": ("-", "")}
POINTER, UNKNOWN = ("p", "u64"), ("", "unknown")
SCRATCH = ("u64", "u64")  # addresses of working memory that Triton adds to the arguments
THREADS = 32  # of a warp


@functools.cache
def launcher(driver: str = DRIVER) -> Any:
    """The module of launcher.c, or None where it cannot be built or loaded, which is warned of."""
    from triton.runtime import build

    try:
        module = build.compile_module_from_src(SOURCE.read_text(encoding="utf-8"), NAME)
        module.use_driver(driver)
    except Exception as error:  # compilers and loaders raise exceptions of any type
        words = f"kernels are launched by Triton, which takes longer: {first_line(error)}"
        warnings.warn(words, RuntimeWarning, stacklevel=2)
        return None
    return module


def kinds_of(compiled: Any) -> str | None:
    """How the arguments of a kernel are handed over, a letter each ("-": compiled in); None for other types."""
    names = [str(each) for each in compiled.src.signature.values()]
    kinds = [POINTER if name.startswith("*") else KINDS.get(name, UNKNOWN) for name in names]
    declared = tuple(register for _, register in kinds if register)
    entry = re.search(r"\.entry\s+\w+\s*\((.*?)\)", compiled.asm["ptx"], re.DOTALL)
    found = () if entry is None else tuple(re.findall(r"\.param\s+\.(\w+)", entry.group(1)))
    return "".join(letter for letter, _ in kinds) if found == declared + SCRATCH else None


def prepared(compiled: Any) -> Any:
    """What launches of a kernel have in common, for `launcher().launch`; None where Triton has to launch it."""
    about = compiled.metadata
    special = (
        about.num_ctas != 1
        or about.launch_cooperative_grid
        or about.launch_pdl
        or about.global_scratch_size
        or about.profile_scratch_size
    )
    kinds = None if special else kinds_of(compiled)
    if kinds is None or launcher() is None:
        return None
    return launcher().prepare(compiled.function, THREADS * about.num_warps, about.shared, kinds)


MOST_KEPT = 4096  # kinds of calls: each length of a text is one of its own
ALIGNED = 16  # bytes of an address, and factor of a number


class Launches:
    """Kernels of calls that are alike, compiled at the first of them."""

    __slots__ = ("_compiled", "numbers")

    def __init__(self) -> None:
        self.numbers: Any = None  # for the caller, who keeps here what calls that are alike share
        self._compiled: dict[str, tuple[Any, Any]] = {}  # kernel, and what it was `prepared` to

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
        """Run a kernel over a grid of programs, on the current device.

        Args:
            name: of the kernel among those of the call.
            arguments: all of the kernel's, in order, compile-time ones too; the first is a tensor.
            registers: of a thread at most; None for as many as the compiler takes.
        """
        known = self._compiled.get(name)
        if known is None:
            compiled = kernel[grid](*arguments, **compile_options(warps, stages, registers))
            if compiled is not None:  # Triton's interpreter compiles nothing
                self._compiled[name] = compiled, prepared(compiled)
            return
        compiled, given = known
        if given is not None and not _observed():
            from triton.runtime import driver

            stream = driver.active.get_current_stream(arguments[0].device.index)
            if launcher().launch(given, *grid, stream, arguments):
                return
        compiled[grid](*arguments)  # which also makes a context for a thread that has none


def compile_options(warps: int, stages: int, registers: int | None = None) -> dict[str, Any]:
    """What Triton compiles a kernel with, see `Launches.run`.

    A product and a sum become one instruction, as in every kernel that was timed: Triton 3.9 warns where this is left
    out, and says that 3.10 will then compile two.
    """
    limit = {} if registers is None else {"maxnreg": registers}
    return {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True, **limit}


def _observed() -> bool:
    """Whether a profiler or the like is told of every launch: Triton's own way tells them."""
    from triton.knobs import runtime

    return any(getattr(hook, "calls", hook) for hook in (runtime.launch_enter_hook, runtime.launch_exit_hook))


@functools.lru_cache(MOST_KEPT)
def alike(*facts: Any) -> Launches:
    """The kernels of calls with these facts, see above; the first names the caller."""
    return Launches()


def aligned(*tensors: Tensor) -> tuple[bool, ...]:
    """Which tensors begin at an address that whole rows can be read from at once."""
    return tuple([tensor.data_ptr() % ALIGNED == 0 for tensor in tensors])


def multiples(*numbers: int) -> tuple[tuple[bool, bool], ...]:
    """Which whole numbers are multiples of 16, and which are 1: Triton compiles for that."""
    return tuple([(number % ALIGNED == 0, number == 1) for number in numbers])


def tiles_of(number: int, size: int) -> int:
    """How many tiles hold so many rows; Triton's own function of the kind takes microseconds."""
    return -(-number // size)


def power_of_two(number: int) -> int:
    """The least power of two that is not below a number, 1 at least."""
    return 1 << max(0, number - 1).bit_length()


HALVES = (torch.float16, torch.bfloat16)
OLDEST = (8, 0)  # compute capability
LARGEST_HEAD = 256

Result = TypeVar("Result")
_failed: set[tuple[object, ...]] = set()


@functools.cache
def on_gpu(device: torch.device) -> bool:
    """Whether this is a GPU that Triton's kernels are written for."""
    if device.type != "cuda" or torch.version.hip is not None or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= OLDEST


def takes_hidden(hidden: Tensor) -> bool:
    """Whether kernels that read hidden states (B, T, E) take these."""
    return (
        on_gpu(hidden.device)
        and not torch.is_grad_enabled()
        and hidden.is_contiguous()
        and hidden.dtype in (*HALVES, torch.float32)
    )


def attention_fits(what: str, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a kernel takes such tensors and has not failed for their like."""
    return (
        query.dtype in HALVES
        and on_gpu(query.device)
        and query.dtype == key.dtype == value.dtype
        and query.shape[3] <= LARGEST_HEAD
        and query.stride(3) == key.stride(3) == value.stride(3) == 1
        and not (_failed and _like(what, query) in _failed)
    )


def tried(what: str, tensor: Tensor, run: Callable[[], Result]) -> Result | None:
    """What a kernel gives, or None where it fails, which is warned of once for each type and size.

    Running out of memory, or losing the GPU, is not a failure of the kernel and is raised.
    """
    if _failed and _like(what, tensor) in _failed:
        return None
    try:
        if tensor.device.type != "cuda" or tensor.device.index == torch.cuda.current_device():
            return run()
        with torch.cuda.device(tensor.device):  # kernels run on the current GPU
            return run()
    except Exception as error:  # compilers and drivers raise exceptions of any type
        if is_out_of_memory(error) or is_lost_gpu(error):
            raise
        _failed.add(_like(what, tensor))
        warnings.warn(f"{what} in Triton is left out: {first_line(error)}", RuntimeWarning, stacklevel=2)
        return None


def _like(what: str, tensor: Tensor) -> tuple[object, ...]:
    return what, tensor.device, tensor.dtype, tensor.shape[-1]


class WithoutCudnn:
    """Context in which torch's attention leaves cuDNN's kernel out, for decode steps: it plans for every new length.

    On Hopper GPUs torch prefers that kernel. A plan took 45 ms on an H100, all the rest of a step 20 (docs/gpu.md).
    Which kernels torch may take is a setting of the whole process. Threads that are inside at once count as one, so
    that none leaves behind what another had set; others may take another kernel meanwhile, which changes no result.
    Torch's own `sdpa_kernel` in another thread is not counted, as it does not count itself.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                own = torch.backends.cuda  # a process may have allowed cuDNN's kernel alone
                others = own.flash_sdp_enabled() or own.mem_efficient_sdp_enabled() or own.math_sdp_enabled()
                self._before = own.cudnn_sdp_enabled() and others
                if self._before:
                    own.enable_cudnn_sdp(enabled=False)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._before:
                torch.backends.cuda.enable_cudnn_sdp(enabled=True)


WITHOUT_CUDNN = WithoutCudnn()
