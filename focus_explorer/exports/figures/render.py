"""Plotly figures -> PDF, SVG and PNG by kaleido in a headless Chrome or Chromium.

Starting the browser takes a second or two; inside `open_browser()` it is started once. Kaleido finds Chrome, Chromium,
Edge, Brave and Vivaldi on the PATH and in their usual places, and starts them without a sandbox, which also works as
root. It loads nothing from elsewhere: MathJax is switched off.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import plotly.graph_objects as go

from focus_explorer.errors import InputError

TIMEOUT = 90.0  # seconds for one picture
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
        """End the browser."""
        try:
            self._wait(self._kaleido.close(), CLOSE)
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


@contextmanager
def open_browser() -> Iterator[Renderer]:
    """The browser for the pictures of this block; nested blocks use the same one, other threads wait.

    Raises:
        InputError: there is no Chrome or Chromium, or it does not start.
    """
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
    """A figure as `pdf`, `svg` or `png`.

    Raises:
        InputError: there is no Chrome or Chromium, or it fails.
    """
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
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InputError(
            f"the browser that draws figures failed: {reason}",
            fix="try again; tables, and figures as HTML, work without it",
        ) from error
