"""Progress on standard error: a bar on a terminal, a line now and then in a file or a pipe (`nohup`, Slurm, CI)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

Progress = Callable[[str, float], None]  # a stage's name, and the fraction done, 0 to 1
StageBar = Callable[[], AbstractContextManager[Progress]]  # `stage_bar`, `no_stages`
Bar = Callable[[int], AbstractContextManager[Callable[[int, str], None]]]  # `step_bar`, `no_bar`

LINE_SECONDS = 10.0  # between lines where there is no terminal; a job that ends sooner prints none of its stages


class _Lines:
    """Lines in place of a bar, where standard error is no terminal; with `tenths` also at each tenth of the way."""

    def __init__(self, *, tenths: bool = False) -> None:
        self._silent = sys.stderr.isatty()  # a bar is shown there
        self._tenths = tenths
        self._began = self._latest = time.monotonic()
        self._first: float | None = None  # fraction that was done before this process began
        self._tenth = 0

    def show(self, words: str, done: float, start: float) -> None:
        """Print a line when one is due; `done` is the part of the whole job, `start` that before this call's work."""
        if self._silent:
            return
        now = time.monotonic()
        if self._first is None:
            self._first, self._tenth = start, int(10 * start)
        tenth = int(10 * done + 1e-9)
        passed = self._tenths and tenth > self._tenth
        if now - self._latest < LINE_SECONDS and not passed:
            return
        self._latest, self._tenth = now, tenth
        share = done - self._first
        left = (now - self._began) * (1 - done) / share if share > 0 else 0.0
        print(f"{words}, about {about(left)} left" if left else words, file=sys.stderr, flush=True)


def silent(stage: str, fraction: float) -> None:
    """A `Progress` that shows nothing."""


def held_at(progress: Progress, fraction: float) -> Progress:
    """A `Progress` for stages in which the fraction stays as it is."""
    return lambda stage, _: progress(stage, fraction)


def about(seconds: float) -> str:
    """A duration as people say it: 40 s, 3 min, 2 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


@contextmanager
def stage_bar() -> Iterator[Progress]:
    """A bar that takes a stage name and the fraction done, 0 to 1; without a terminal a line every 10 s."""
    from tqdm import tqdm

    lines = _Lines()
    layout = "{desc:<28} {percentage:3.0f}% |{bar:30}| {elapsed}"
    with tqdm(total=100, file=sys.stderr, bar_format=layout, disable=None) as bar:

        def update(stage: str, fraction: float) -> None:
            bar.set_description_str(stage[:28], refresh=False)
            bar.update(max(0, round(fraction * 100) - bar.n))
            bar.refresh()
            lines.show(f"{stage} ({fraction:.0%} done)", fraction, fraction)

        yield update


def no_stages() -> AbstractContextManager[Progress]:
    """Takes the same as a `stage_bar` and shows nothing."""
    return nullcontext(silent)


@contextmanager
def step_bar(total: int, layout: str | None = None) -> Iterator[Callable[[int, str], None]]:
    """A bar of a training, in tqdm's format `layout`; it takes the steps done and a line of numbers.

    Without a terminal it is a line every 10 s and at each tenth of the steps.
    """
    from tqdm import tqdm

    lines = _Lines(tenths=True)
    with tqdm(total=total, file=sys.stderr, bar_format=layout, desc="Training", disable=None) as bar:

        def update(done: int, numbers: str) -> None:
            lines.show(f"Training: step {done:,} of {total:,}, {numbers}", done / total, (done - 1) / total)
            if not bar.n:  # steps before a resume say nothing about the speed
                bar.initial = bar.n = bar.last_print_n = done - 1
            bar.update(done - bar.n)
            bar.set_postfix_str(numbers)

        yield update


@contextmanager
def bars_hidden() -> Iterator[None]:
    """Bars are taken off the terminal while the block prints lines, and drawn again after it."""
    from tqdm import tqdm

    with tqdm.external_write_mode(file=sys.stderr):
        yield


def no_bar(total: int) -> AbstractContextManager[Callable[[int, str], None]]:
    """Takes the same as a `step_bar` and shows nothing."""
    return nullcontext(lambda done, numbers: None)


@contextmanager
def document_bar() -> Iterator[Callable[[int, int], None]]:
    """A bar that takes how many documents are done, and of how many; without a terminal a line every 10 s."""
    from tqdm import tqdm

    lines = _Lines()
    layout = "{n_fmt} of {total_fmt} documents |{bar:30}| {elapsed}, {remaining} left"
    with ExitStack() as open_bars:
        bars: list[Any] = []

        def update(done: int, total: int) -> None:
            lines.show(f"{done:,} of {total:,} documents", done / total, (done - 1) / total)
            if not bars:  # documents done earlier say nothing about the speed
                bars.append(
                    tqdm(total=total, initial=max(0, done - 1), file=sys.stderr, bar_format=layout, disable=None)
                )
                open_bars.enter_context(bars[0])
            bars[0].update(done - bars[0].n)

        yield update
