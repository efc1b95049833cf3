"""The scripts and styles the page loads, all served by the page itself."""

from __future__ import annotations

from html import escape
from pathlib import Path

import plotly

from focus_runtime.assets import asset_path


def plotly_script() -> Path:
    """plotly.min.js from the installed Plotly package."""
    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def scripts() -> list[Path]:
    """Scripts in the order they must run: Plotly, then ours by name."""
    return [plotly_script(), *sorted(asset_path("js").glob("*.js"))]


def stylesheets() -> list[Path]:
    """Style sheets, ours only."""
    return sorted(asset_path("css").glob("*.css"))


def static_paths() -> list[Path]:
    """The files the page may read, and no other."""
    return scripts()


def head_html() -> str:
    """Script tags; `defer` keeps their order and does not hold up the first paint."""
    tags = (f'<script defer src="gradio_api/file={escape(str(path), quote=True)}"></script>' for path in scripts())
    return "\n".join(tags)
