"""Plotly figures -> PDF, SVG and PNG by kaleido in a headless Chrome or Chromium.

Starting the browser takes a second or two; inside `open_browser()` it is started once. Kaleido finds Chrome, Chromium,
Edge, Brave and Vivaldi on the PATH and in their usual places, and starts them without a sandbox, which also works as
root. It loads nothing from elsewhere: MathJax is switched off.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any

import plotly
import plotly.graph_objects as go

from focus_explorer.errors import InputError
from focus_runtime.errors import first_line
from focus_runtime.files import replacing

TIMEOUT, PRINTING = 90.0, 120.0  # seconds for one picture, and for a report
START, CLOSE = 60.0, 15.0  # seconds; on a busy machine a browser can hang at either
PRINT_DPI = 300
_open: Renderer | None = None
_lock = threading.RLock()


class Renderer:
    """One browser on its own thread and event loop; a call from any thread waits for its picture."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="figures", daemon=True)
        self._thread.start()
        try:
            self._kaleido = self._wait(self._start(), START)
        except BaseException:
            self._end()
            raise

    async def _start(self) -> Any:
        from kaleido import Kaleido, PageGenerator

        class Page(PageGenerator):
            """Kaleido's page under another title, which PDF files inherit."""

            def generate_index(self, *arguments: Any) -> str:
                return re.sub("<title>.*?</title>", "<title>Focus Explorer</title>", super().generate_index(*arguments))

        browser = Kaleido(n=1, timeout=TIMEOUT, page_generator=Page(mathjax=False))
        await browser.open()
        return browser

    def _wait(self, work: Any, seconds: float = 2 * TIMEOUT) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def draw(self, figure: go.Figure, file_format: str) -> bytes:
        """The figure at its own size; PNG at 300 pixels per inch."""
        scale = PRINT_DPI / 96 if file_format == "png" else 1
        options = {"format": file_format, "width": figure.layout.width, "height": figure.layout.height, "scale": scale}
        return bytes(self._wait(self._kaleido.calc_fig(figure, opts=options)))

    def close(self) -> None:
        try:
            self._wait(self._kaleido.close(), CLOSE)
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


@contextmanager
def open_browser() -> Iterator[Renderer]:
    """The browser for the pictures of this block, or an InputError; nested blocks use one, other threads wait."""
    global _open
    with _lock:
        outer = _open
        if outer is not None:
            yield outer
            return
        with _explained():
            renderer = Renderer()
        _open = renderer
        try:
            yield renderer
        finally:
            _open = None
            with suppress(InputError), _explained():  # the pictures are made
                renderer.close()


def picture(figure: go.Figure, file_format: str) -> bytes:
    """A figure as `pdf`, `svg` or `png`; an InputError where there is no Chrome or Chromium, or it fails."""
    with open_browser() as renderer, _explained():
        return renderer.draw(figure, file_format)


@contextmanager
def _explained() -> Iterator[None]:
    from choreographer.errors import BrowserFailedError, ChromeNotFoundError, DevtoolsProtocolError
    from kaleido.errors import KaleidoError

    try:
        yield
    except ChromeNotFoundError as error:
        raise InputError(
            "figures as PDF, SVG and PNG need Chrome or Chromium, and none was found",
            expected="chromium, google-chrome or another one of its kind on the PATH",
            fix="install it (on Debian: apt install chromium); tables, and figures as HTML, work without",
        ) from error
    except (BrowserFailedError, DevtoolsProtocolError, KaleidoError, RuntimeError, TimeoutError) as error:
        raise InputError(
            f"the browser that draws figures failed: {first_line(error)}",
            fix="try again; tables, and figures as HTML, work without it",
        ) from error


_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_STYLE = """
body { font: 15px/1.5 Arial, "Liberation Sans", Helvetica, sans-serif; color: #1a1a1a; background: #fff;
  margin: 24px auto; max-width: 960px; padding: 0 16px; }
h1 { font-size: 20px; } figure { margin: 0; overflow-x: auto; } figcaption { max-width: 46em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; font-size: 13px; color: #4a4a4a; }
dd { margin: 0; overflow-wrap: anywhere; }
"""
_SETTINGS = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d"], "plotlyServerURL": ""}


def page(figure: go.Figure) -> str:
    """The page: title, figure, caption and provenance, all from `layout.meta`."""
    meta = figure.layout.meta
    script = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    script = script.replace("</script", "<\\/script")
    drawing = json.dumps(json.loads(figure.to_json()), ensure_ascii=False).replace("<", "\\u003c")
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in meta["provenance"].items())
    title = escape(meta["title"])
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>{_STYLE}</style></head>
<body><h1>{title}</h1>
<figure><div id="figure" role="img" aria-label="{title}"></div>
<figcaption>{escape(meta["caption"])} {escape(meta["setting"])}.</figcaption></figure>
<details><summary>Where this comes from</summary><dl>{rows}</dl></details>
<script>{script}</script>
<script type="application/json" id="data">{drawing}</script>
<script>
const drawing = JSON.parse(document.getElementById("data").textContent);
Plotly.newPlot("figure", drawing.data, drawing.layout, {json.dumps(_SETTINGS)});
</script></body></html>
"""


def browser() -> str | None:
    """Path of a Chrome, Chromium or one of its kind; None where there is none."""
    from choreographer.browsers.chromium import Chromium

    path = Chromium.find_browser(skip_local=False)
    return str(path) if path else None


def print_pdf(page: Path, out: Path) -> Path:
    """Print an HTML file with its styles for print; an InputError where there is no browser, or it fails."""
    program = browser()
    if program is None:
        raise InputError(
            "a PDF needs Chrome or Chromium, and none was found", fix="install it (on Debian: apt install chromium)"
        )
    with replacing(os.path.expanduser(out)) as part, tempfile.TemporaryDirectory(prefix="focus-print-") as profile:
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-extensions",
            f"--user-data-dir={profile}",
            "--no-pdf-header-footer",
            f"--print-to-pdf={part}",
            page.resolve().as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=PRINTING, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"the browser that prints the PDF failed: {type(error).__name__}") from error
        data = part.read_bytes()
        if done.returncode or not data.startswith(b"%PDF"):
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InputError(f"the browser that prints the PDF failed: {(lines or ['no reason given'])[-1][:200]}")
        part.write_bytes(re.sub(rb"D:\d{14}", b"D:20000101000000", data))
    return out
