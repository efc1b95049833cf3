"""The scripts and styles the page loads, all served by the page itself."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from functools import cache
from html import escape
from pathlib import Path

import plotly

from focus_runtime.assets import asset_path


def plotly_script() -> Path:
    """plotly.min.js from the installed Plotly package."""
    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def scripts() -> list[Path]:
    """Our scripts in the order they must run."""
    return sorted(asset_path("js").glob("*.js"))


def stylesheets() -> list[Path]:
    """Style sheets, ours only."""
    return sorted(asset_path("css").glob("*.css"))


@cache
def joined_script() -> Path:
    """Our scripts as one temporary file: one request instead of forty, each of which would queue behind Gradio's own.

    Its name changes with its content, so that a browser never runs what it kept of another version.
    """
    code = "\n".join(f"// {path.name}\n{path.read_text(encoding='utf-8')}" for path in scripts())
    folder = Path(tempfile.mkdtemp(prefix="focus-explorer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    joined = folder / f"explorer-{hashlib.sha256(code.encode()).hexdigest()[:12]}.js"
    joined.write_text(code, encoding="utf-8")
    return joined


def static_paths() -> list[Path]:
    """The files the page may read, and no other."""
    return [plotly_script(), joined_script()]


def head_html() -> str:
    """Our script; Plotly, ten times its size, is only named: the first chart loads it (48-plot.js)."""
    return (
        f'<meta name="fe-plotly" content="{_address(plotly_script())}">\n'
        f'<script defer src="{_address(joined_script())}"></script>'
    )


def _address(path: Path) -> str:
    return f"gradio_api/file={escape(str(path), quote=True)}"
