"""A thread that ends the job which takes more memory than one may, before the system ends the whole server."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from focus_explorer.usecases.job_limits import job_limits, too_large
from focus_explorer.usecases.jobs import Job, live_jobs
from focus_explorer.usecases.logs import LOG

LOOK_SECONDS = 0.2
TRIM_LOOKS = 150  # between two times that freed memory is given back, which the C library would keep
LAST_LOOKS = 25  # for a job to reach its next step, before the next one is ended too


@contextmanager
def memory_watched() -> Iterator[None]:
    """Watch the memory of this process while the block runs."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def resident_bytes() -> int:
    """Memory that this process takes now."""
    return int(psutil.Process().memory_info().rss)


def give_back_memory(*, garbage: bool = True) -> None:
    """Let the C library return what it keeps for later, where it does.

    Args:
        garbage: collect Python's first, for which everything else waits half a second.
    """
    if garbage:
        gc.collect()
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _watch(ended: threading.Event) -> None:
    patience, job, look = 0, None, 0
    while not ended.wait(LOOK_SECONDS):
        look += 1
        if look % TRIM_LOOKS == 0:
            give_back_memory(garbage=False)
        if job is not None and not job.live:
            job = None
            give_back_memory()
        most = job_limits().memory_bytes
        patience = max(0, patience - 1)
        if most is None or patience or resident_bytes() <= most:
            continue
        patience, job = LAST_LOOKS, _newest_at_work()
        if job is None:  # nothing to end: garbage, or what the page itself keeps
            give_back_memory()
        else:
            job.end(too_large(most))
            LOG.warning("a job took too much memory", extra={"fields": {"kind": job.kind}})


def _newest_at_work() -> Job | None:
    """The job begun last of those that compute and were not ended yet."""
    jobs = [job for job in live_jobs() if job.working and not job.stop_requested()]
    return min(jobs, key=lambda job: job.seconds, default=None)
