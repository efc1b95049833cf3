"""Paths of the page's files that ship with the explorer: in the package in a wheel, in assets/ in a checkout."""

from __future__ import annotations

from pathlib import Path


def asset_path(*parts: str) -> Path:
    """Path of a shipped script, style sheet or sample text; it may not exist.

    Args:
        parts: folder and file below `js`, `css` or `samples`.
    """
    packaged = Path(__file__).parent / "_assets"
    root = packaged if packaged.is_dir() else Path(__file__).parents[1] / "assets"
    return root.joinpath(*parts)
