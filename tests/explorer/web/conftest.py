"""Gradio in half the time, for all tests of the page."""

from __future__ import annotations

from focus_explorer.web.gradio_internals import import_gradio

import_gradio()
