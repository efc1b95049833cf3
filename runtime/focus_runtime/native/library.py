"""Build and load the C++ functions. Nothing needs them: where there is no compiler, torch does the same work."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

from focus_runtime.files import replacing

PACKAGE = Path(__file__).parents[1]
SOURCES = (PACKAGE / "attention" / "fused.cpp", PACKAGE / "routing" / "few_tokens.cpp")
HEADERS = (PACKAGE / "attention" / "matrix_tiles.h",)
NATIVE = "-march=native"
FLAGS = ("-O3", NATIVE, "-std=c++17", "-fPIC", "-shared", "-pthread")
COMPILERS = ("c++", "g++", "clang++")
BUILD_SECONDS = 120
_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int64
ARGUMENTS: dict[str, list[Any]] = {
    "focus_attention_cpu": [ctypes.c_char_p],
    "focus_matrix_tiles": [],
    "focus_step_cpu": [ctypes.c_char_p],
    "focus_route_cpu": [*[_ADDRESS] * 5, *[_NUMBER] * 5],
}


def processor_identity() -> bytes:
    """What `-march=native` depends on: a cache on a shared home folder may serve different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        import platform

        return f"{platform.machine()} {platform.processor()} {platform.version()}".encode()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})).encode()


def build(folder: Path) -> Path:
    """The shared library for this machine, compiler and source, compiled unless the folder has it.

    Raises:
        OSError: no compiler, or it fails. SubprocessError: it takes too long.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise OSError("no C++ compiler was found (looked for " + ", ".join(COMPILERS) + ")")
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=BUILD_SECONDS, check=True).stdout
    texts = [source.read_bytes() for source in (*SOURCES, *HEADERS)]
    key = hashlib.sha256(b"\0".join((*texts, " ".join(FLAGS).encode(), version, processor_identity())))
    target = folder / f"focus-attention-{key.hexdigest()[:20]}.so"
    if target.is_file():
        return target
    with replacing(target, explain=None, mode=0o755) as fresh:
        for flags in (FLAGS, tuple(flag for flag in FLAGS if flag != NATIVE)):  # some compilers know no "native"
            command = [compiler, *flags, *map(str, SOURCES), "-o", str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
            if done.returncode == 0:
                break
        else:
            raise OSError(f"{compiler} failed: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
    return target


@functools.cache
def library() -> tuple[ctypes.CDLL | None, str]:
    """The compiled functions, or None and the reason there are none. Compiled at most once per machine and version."""
    from focus_runtime.files import default_cache_dir

    try:
        functions = ctypes.CDLL(str(build(default_cache_dir() / "kernels")))
    except (OSError, subprocess.SubprocessError) as error:
        return None, str(error)
    for name, arguments in ARGUMENTS.items():
        function = getattr(functions, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return functions, ""
