"""A browser that hangs, at its start or its end, keeps nobody waiting."""

from __future__ import annotations

import asyncio

import plotly.graph_objects as go
import pytest

from focus_explorer.errors import InputError
from focus_explorer.exports.figures import render


@pytest.fixture
def browser(monkeypatch):
    """A browser whose calls named in the set never end; a picture is b"drawn"."""
    hanging = set()

    class Browser:
        def __init__(self, **options):
            pass

        async def step(self, name, answer=None):
            if name in hanging:
                await asyncio.sleep(3600)
            return answer

        async def open(self):
            await self.step("open")

        async def calc_fig(self, figure, opts):
            return await self.step("draw", b"drawn")

        async def close(self):
            await self.step("close")

    monkeypatch.setattr("kaleido.Kaleido", Browser)
    monkeypatch.setattr(render, "START", 0.2)
    monkeypatch.setattr(render, "CLOSE", 0.2)
    return hanging


def test_one_that_does_not_start_is_said(browser):
    browser.add("open")
    with pytest.raises(InputError, match="the browser that draws figures failed: TimeoutError"):
        render.picture(go.Figure(), "svg")
    browser.clear()
    assert render.picture(go.Figure(), "svg") == b"drawn"  # the next one is tried anew


def test_one_that_does_not_end_has_drawn(browser):
    browser.add("close")
    assert render.picture(go.Figure(), "svg") == b"drawn"
