"""Progress: what bars on a terminal say of the time that is left, and the lines that replace them in a log."""

from __future__ import annotations

import io
import re
import sys
import time

from focus_explorer import progress
from focus_explorer.progress import stage_bar, step_bar
from focus_explorer.words import counted


def test_one_is_one_and_many_are_many():
    assert [counted(count, "scored token") for count in (0, 1, 1200)] == [
        "0 scored tokens",
        "1 scored token",
        "1,200 scored tokens",
    ]
    assert (counted(1, "query", "queries"), counted(2, "query", "queries")) == ("1 query", "2 queries")


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


def test_a_log_gets_a_line_at_each_tenth_of_a_training(monkeypatch, capsys):
    clock = iter(range(100, 10_000, 3))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with step_bar(200) as show:
        for step in range(101, 201):  # continued after step 100
            show(step, f"loss {step / 100:.2f}")
    lines = capsys.readouterr().err.splitlines()
    assert "Training: step 140 of 200, loss 1.40, about 3 min left" in lines  # 60 steps of 3 s each
    assert lines[-1] == "Training: step 200 of 200, loss 2.00"
    assert 10 <= len(lines) <= 40  # every 10 s: every fourth step


def test_a_log_gets_a_line_every_ten_seconds_of_other_work(monkeypatch, capsys):
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with stage_bar() as show:
        for tenth in range(6):
            show(f"{tenth} measurements", tenth / 10)
    assert capsys.readouterr().err.splitlines() == [
        "1 measurements (10% done), about 2 min left",
        "3 measurements (30% done), about 56 s left",
        "5 measurements (50% done), about 36 s left",
    ]
