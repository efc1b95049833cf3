"""Bars on a terminal: what they say of the time that is left."""

from __future__ import annotations

import io
import re
import sys
import time

from focus_explorer.progress import step_bar


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_steps_before_a_resume_say_nothing_about_the_speed(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with step_bar(1000, layout="{n_fmt}/{total_fmt} {rate_fmt}") as show:
        for step in (801, 802, 803):
            time.sleep(0.15)
            show(step, "")
    last = terminal.getvalue().split("\r")[-1]
    assert last.startswith("803/1000")
    assert float(re.search(r"([\d.]+)it/s", last)[1]) < 10
