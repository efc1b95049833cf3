"""Serving until SIGTERM or SIGINT, which end background work at its next step before they end the server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from focus_explorer.usecases.jobs import stop_all_jobs
from focus_explorer.usecases.logs import LOG

LEAVING_SECONDS = 10.0  # for jobs to reach their next step
LAST_SECONDS = 5.0  # after that, for the server and all that is left
LOOK_SECONDS = 1.0  # between looks at signals that came to another thread


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """SIGTERM and SIGINT set the event; a second one ends the program at once.

    Where SIGINT was ignored at the start, as in a shell script's background job, it stays without effect here. But it
    gets a handler, since processes started from here inherit only what is ignored: trainings are stopped by SIGINT.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def stop(number: int, frame: Any) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    def nothing(number: int, frame: Any) -> None:
        pass

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    handlers = {signal.SIGTERM: stop, signal.SIGINT: nothing if ignored else stop}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for(stopping: threading.Event) -> None:
    """Wait until the event of `stop_signals` is set.

    A signal may reach any thread of a process, but only the main one runs its handler, and it does not do so as long as
    it waits undisturbed: a busy machine was seen to keep a server that way for good.
    """
    while not stopping.wait(LOOK_SECONDS):
        pass


def end_jobs(seconds: float = LEAVING_SECONDS) -> None:
    """Request that all background work stops, and wait for it; what it has not stored by then is dropped."""
    left = stop_all_jobs(seconds)
    if left:
        LOG.warning(f"ended during {', '.join(sorted(job.kind for job in left))}; nothing half is kept")


def exit_at_last(seconds: float = LEAVING_SECONDS + LAST_SECONDS) -> None:
    """End this process after so many seconds even where a thread is stuck; what is stored is whole at any moment."""

    def end() -> None:
        LOG.warning("ended with work that did not stop")
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
