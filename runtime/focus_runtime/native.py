"""Build and load the C++ functions. Nothing needs them: where there is no compiler, torch does the same work."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from focus_runtime.files import is_own, make_private, others_write, replacing

SOURCE = Path(__file__).with_name("csrc")
SOURCES = tuple(SOURCE / name for name in ("fused.cpp", "few_tokens.cpp", "decode_step.cpp"))
HEADERS = (SOURCE / "matrix_tiles.h", SOURCE / "common.h")
NATIVE = "-march=native"
FLAGS = ("-O3", NATIVE, "-std=c++17", "-fPIC", "-shared", "-pthread")
COMPILERS: tuple[str, ...] = ("c++", "g++", "clang++")
PACKAGED = "ziglang"  # a compiler that pip installs; it builds its own standard library once, which takes a minute
BUILD_SECONDS = 600
_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int64
ARGUMENTS: dict[str, list[Any]] = {
    "focus_attention_cpu": [ctypes.c_char_p],
    "focus_matrix_tiles": [],
    "focus_step_cpu": [ctypes.c_char_p],
    "focus_route_cpu": [*[_ADDRESS] * 5, *[_NUMBER] * 5],
    "focus_decode_cpu": [ctypes.c_char_p, ctypes.c_char_p],
}


def processor_identity() -> bytes:
    """What `-march=native` depends on: a cache on a shared home folder may serve different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        import platform

        return f"{platform.machine()} {platform.processor()} {platform.version()}".encode()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})).encode()


def compiler_command(folder: Path) -> list[str]:
    """How the machine's C++ compiler is started, or the one from PyPI where the machine has none."""
    own = next(filter(None, map(shutil.which, COMPILERS)), None)
    if own is not None:
        return [own]
    if importlib.util.find_spec(PACKAGED) is not None:
        caches = [f"ZIG_{kind}_CACHE_DIR={folder / PACKAGED}" for kind in ("GLOBAL", "LOCAL")]
        return [*(["env", *caches] if os.name == "posix" else []), sys.executable, "-m", PACKAGED, "c++"]
    looked_for = ", ".join(COMPILERS)
    raise OSError(f"no C++ compiler was found (looked for {looked_for}); pip install {PACKAGED} brings one")


def build(folder: Path) -> Path:
    """The shared library for this machine, compiler and source, compiled unless the folder has it.

    What is loaded runs: nobody else may write the folder, and a file that others could have written is compiled anew.
    """
    make_private(folder)
    compiler = compiler_command(folder)
    limits: dict[str, Any] = {"capture_output": True, "timeout": BUILD_SECONDS}
    version = subprocess.run([*compiler, "--version"], check=True, **limits).stdout
    texts = [source.read_bytes() for source in (*SOURCES, *HEADERS)]
    key = hashlib.sha256(b"\0".join((*texts, " ".join(FLAGS).encode(), version, processor_identity())))
    target = folder / f"focus-attention-{key.hexdigest()[:20]}.so"
    if target.is_file() and is_own(target) and not others_write(target):
        return target
    with replacing(target, explain=None, mode=0o755) as fresh:
        for flags in (FLAGS, tuple(flag for flag in FLAGS if flag != NATIVE)):  # some compilers know no "native"
            command = [*compiler, *flags, *map(str, SOURCES), "-o", str(fresh)]
            done = subprocess.run(command, text=True, **limits)
            if done.returncode == 0:
                break
        else:
            raise OSError(f"{' '.join(compiler)} failed: {(done.stderr.strip().splitlines() or ['no message'])[0]}")
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
