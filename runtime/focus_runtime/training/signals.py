"""Signals that wait until an update is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the block ends, so that no half-finished update is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, Any]] = []
    before = {
        one: signal.signal(one, lambda number, frame: received.append((number, frame)))
        for one in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    for number, frame in received:
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        elif handler is not signal.SIG_IGN:
            raise KeyboardInterrupt
