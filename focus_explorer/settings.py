"""Options of the application with their defaults and help texts; the only place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from focus_runtime.config import BACKENDS as BACKENDS
from focus_runtime.config import DTYPES as DTYPES
from focus_runtime.config import SPECIAL_TOKENS as SPECIAL_TOKENS
from focus_runtime.files import process_runs as process_runs
from focus_runtime.version import __version__

TEXTS_BEGIN = "what texts begin with: auto for the tokens that the tokenizer puts before them, such as BOS, or none"
VERSION = __version__
MAX_UPLOAD_BYTES = 512 * 1024 * 1024
MAX_KEPT_BYTES = 4 * 1024**3  # of all uploaded centroid files together
MAX_TEXT_BYTES = 20 * 1024 * 1024
KEPT_KERNELS = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """One option: name, default and help text, shown by the command line and the documentation."""

    name: str
    default: str
    help: str


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("model", "smollm2-135m", "embedded model name, Hugging Face hub id, model folder or .gguf file"),
        Setting(
            "centroids", "default", "default, default-quality, novels, random, a path, or user/repo[@revision] of a hub"
        ),
        Setting("host", "127.0.0.1", "address the page is served on"),
        Setting("port", "7860", "port the page is served on; the next free one when it is taken"),
        Setting("db", "", "DuckDB file with the runs (environment: FOCUS_EXPLORER_DB)"),
    )
}


def default_database() -> Path:
    """FOCUS_EXPLORER_DB, or a file in the user's data folder."""
    given = os.environ.get("FOCUS_EXPLORER_DB")
    return Path(given) if given else Path.home() / ".local" / "share" / "focus-explorer" / "explorer.duckdb"


def cache_dir() -> Path:
    """FOCUS_EXPLORER_CACHE, or a folder in the user's cache."""
    given = os.environ.get("FOCUS_EXPLORER_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "focus-explorer"


def set_upload_folder(folder: Path) -> None:
    """Where Gradio keeps uploads, unless the user says so with GRADIO_TEMP_DIR."""
    os.environ.setdefault("GRADIO_TEMP_DIR", str(folder))


def process_user() -> str | None:
    """FOCUS_EXPLORER_USER, the user of a lab's page for whom the page started this process; None without one."""
    return os.environ.get("FOCUS_EXPLORER_USER") or None


def with_process_user(user: str | None) -> dict[str, str]:
    """The environment of a process that works for a user."""
    return os.environ | ({"FOCUS_EXPLORER_USER": user} if user else {})


def with_temporary_folder(folder: Path) -> dict[str, str]:
    """The environment of pip or uv that keeps its temporary files in a folder, and may install into another one."""
    return os.environ | {"TMPDIR": str(folder), "PIP_USER": "0"}


def prepare_libraries() -> None:
    """Everything that libraries are told by the environment, before torch is imported."""
    quiet_libraries()
    bound_caches()
    wait_without_spinning()


def bound_caches() -> None:
    """Let torch and its oneDNN keep few compiled products of matrices, before the first is computed.

    They compile one for every shape, so for every length of a text, and keep 1,024 each: half a gigabyte after some
    hundred texts.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(KEPT_KERNELS))


def wait_without_spinning() -> None:
    """Let OpenMP's threads sleep while they wait for each other, before torch is imported.

    Spinning, as GNU's library does, takes the core that the awaited thread needs where the machine has other work: a
    pass beside two busy processes takes twice to four times as long (LOG.md). The user's own setting stays.
    """
    if "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def quiet_libraries() -> None:
    """No telemetry and no progress bars of libraries between our own."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")


def asset_path(*parts: str) -> Path:
    """Path of a shipped script, style sheet or sample text below `js`, `css` or `samples`; it may not exist."""
    packaged = Path(__file__).parent / "_assets"
    root = packaged if packaged.is_dir() else Path(__file__).parents[1] / "assets"
    return root.joinpath(*parts)
