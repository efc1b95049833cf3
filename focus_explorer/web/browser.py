"""The scripts and styles the page loads, all served by the page itself."""

from __future__ import annotations

import atexit
import hashlib
import re
import shutil
import tempfile
from functools import cache
from html import escape
from pathlib import Path

import plotly

from focus_explorer.assets import asset_path
from focus_explorer.web.scripts import link


def plotly_script() -> Path:
    """plotly.min.js from the installed Plotly package."""
    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def scripts() -> list[Path]:
    """Our modules: every file of assets/js."""
    return sorted(asset_path("js").rglob("*.js"))


def page_script() -> str:
    """The one script of the page."""
    return link(asset_path("js") / "main.js")


def notebook_script() -> str:
    """The one script of a notebook and of a run saved as HTML: the views, without the page around them."""
    return link(asset_path("js") / "notebook.js")


def stylesheets() -> list[Path]:
    """Our style sheets in the order of the cascade: tokens, core, shell, then the folders of the views."""
    root = asset_path("css")

    def order(path: Path) -> tuple[bool, bool, bool, str]:
        name = path.relative_to(root).as_posix()
        return name != "core/tokens.css", not name.startswith("core/"), not name.startswith("shell/"), name

    return sorted(root.rglob("*.css"), key=order)


def host_style() -> Path:
    """Our styles of Gradio's own parts."""
    return asset_path("css", "shell", "page.css")


def background(*, dark: bool) -> str:
    """The colour behind the views, as core/tokens.css defines it for them: they cannot pass it on to a whole page."""
    tokens = asset_path("css", "core", "tokens.css").read_text(encoding="utf-8")
    colours = {}
    for selector, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", tokens):
        if colour := re.search(r"--fx-bg:\s*([^;]+);", rule):
            colours[".dark" in selector] = colour[1]
    return colours[dark]


@cache
def joined_files() -> tuple[Path, Path]:
    """Our script and the styles of our views as two temporary files.

    One request each instead of a hundred, which would queue behind Gradio's own; and not through Gradio's `css`, which
    splits selectors at every comma, also inside `:is()`. The root class is repeated to outrank Gradio's styles. The
    names change with the content, so that a browser never runs what it kept of another version.
    """
    folder = Path(tempfile.mkdtemp(prefix="focus-explorer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    styles = [path for path in stylesheets() if path != host_style()]
    look = re.sub(r"\.fx-root(?![\w-])", ".fx-root" * 3, _joined(styles))
    return _written(folder, page_script(), "js"), _written(folder, look, "css")


def _joined(styles: list[Path]) -> str:
    root = asset_path("css")
    return "\n".join(
        f"/* {path.relative_to(root).as_posix()} */\n{path.read_text(encoding='utf-8')}" for path in styles
    )


def _written(folder: Path, text: str, ending: str) -> Path:
    path = folder / f"explorer-{hashlib.sha256(text.encode()).hexdigest()[:12]}.{ending}"
    path.write_text(text, encoding="utf-8")
    return path


def static_paths() -> list[Path]:
    """The files the page may read, and no other."""
    return [plotly_script(), *joined_files()]


def head_html() -> str:
    """Our styles and script; Plotly, ten times their size, is only named: the first chart loads it (core/plotly.js)."""
    script, style = joined_files()
    return (
        f'<link rel="stylesheet" href="{_address(style)}">\n'
        f'<meta name="fe-plotly" content="{_address(plotly_script())}">\n'
        f'<script defer src="{_address(script)}"></script>'
    )


def _address(path: Path) -> str:
    return f"gradio_api/file={escape(str(path), quote=True)}"
