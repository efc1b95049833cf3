"""Where files outside the package lie, and how they are written."""

from __future__ import annotations

from pathlib import Path


def default_cache_dir() -> Path:
    """Where converted models are kept between runs."""
    return Path.home() / ".cache" / "focus-explorer"
