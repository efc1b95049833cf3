"""Paths of the centroid files that ship with the runtime: in the package in a wheel, in assets/ in a checkout."""

from __future__ import annotations

from pathlib import Path

SHIPPED_CENTROIDS = {  # by the name that stands for the file, the default first
    "default": "smollm2-135m.safetensors",
    "default-quality": "smollm2-135m-quality.safetensors",
    "novels": "smollm2-135m-novels.safetensors",
}


def asset_path(*parts: str) -> Path:
    """Path of a shipped file; it may not exist."""
    packaged = Path(__file__).parent / "_assets"
    root = packaged if packaged.is_dir() else Path(__file__).parents[2] / "assets"
    return root.joinpath(*parts)
