"""Signals that stop a training: the step under way is finished and saved."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM set the event, so that the step under way is finished; a second one stops at once.

    So does SIGHUP, by which a lost terminal ends what runs in it, but where `nohup` has it ignored; it may come twice.
    """
    requested, hang_up = threading.Event(), getattr(signal, "SIGHUP", None)  # Windows has none
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return

    def handle(number: int, frame: Any) -> None:
        if requested.is_set() and number != hang_up:
            raise KeyboardInterrupt
        requested.set()
        with suppress(OSError):  # Ctrl-C ends `| tee log` too: nobody reads this, and the step must be finished
            print("\nstopping after this step; once more stops at once", file=sys.stderr)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:
        numbers.append(hang_up)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
