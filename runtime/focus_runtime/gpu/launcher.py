"""Kernels that Triton compiled, launched by a few lines of C: Triton's own launch asks the driver about every pointer.

Built by what Triton builds its own with, so there is a compiler wherever there are kernels. Where that fails, or a
kernel has arguments that are not known here, Triton launches it.
"""

from __future__ import annotations

import functools
import re
import warnings
from pathlib import Path
from typing import Any

from focus_runtime.errors import first_line

SOURCE = Path(__file__).with_name("launcher.c")
DRIVER = "libcuda.so.1"
NAME = "focus_launcher"
# Of an argument's type in Triton: how it is handed over, and what the compiled kernel declares it as.
KINDS = {"i32": ("i", "u32"), "i64": ("q", "u64"), "fp32": ("f", "f32"), "constexpr": ("-", "")}
POINTER = ("p", "u64")
SCRATCH = ("u64", "u64")  # addresses of working memory that Triton adds to the arguments
THREADS = 32  # of a warp


@functools.cache
def launcher(driver: str = DRIVER) -> Any:
    """The module of launcher.c, or None where it cannot be built or loaded, which is warned of.

    Args:
        driver: library whose functions it calls.
    """
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
    """How the arguments of a kernel are handed over, one letter each; None where one is of another type.

    Args:
        compiled: as Triton keeps it.

    Returns:
        "p" for an address, "i" and "q" for whole numbers of 32 and 64 bits, "f" for one of single precision, "-" for
        what is compiled in.
    """
    known = [_kind(str(each)) for each in compiled.src.signature.values()]
    if any(each is None for each in known):
        return None
    declared = tuple(each[1] for each in known if each is not None and each[1])
    entry = re.search(r"\.entry\s+\w+\s*\((.*?)\)", compiled.asm["ptx"], re.DOTALL)
    found = () if entry is None else tuple(re.findall(r"\.param\s+\.(\w+)", entry.group(1)))
    return "".join(each[0] for each in known if each is not None) if found == declared + SCRATCH else None


def _kind(name: str) -> tuple[str, str] | None:
    return POINTER if name.startswith("*") else KINDS.get(name)


def prepared(compiled: Any) -> Any:
    """What launches of a kernel have in common, for `launcher().launch`; None where Triton has to launch it.

    Args:
        compiled: as Triton keeps it, loaded.
    """
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
