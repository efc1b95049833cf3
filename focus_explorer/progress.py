"""A progress bar for terminals. Silent where standard error is a file or a pipe, so that scripts can read it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stage_bar() -> Iterator[Callable[[str, float], None]]:
    """A bar that takes a stage name and the fraction done, 0 to 1."""
    from tqdm import tqdm

    layout = "{desc:<28} {percentage:3.0f}% |{bar:30}| {elapsed}"
    with tqdm(total=100, file=sys.stderr, bar_format=layout, disable=None) as bar:

        def update(stage: str, fraction: float) -> None:
            bar.set_description_str(stage[:28], refresh=False)
            bar.update(max(0, round(fraction * 100) - bar.n))
            bar.refresh()

        yield update
