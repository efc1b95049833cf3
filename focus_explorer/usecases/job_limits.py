"""How much of the machine one job may take: the settings of this process, and what a job that reaches one is told."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from focus_explorer.errors import InputError, MemoryShortError
from focus_explorer.progress import about

DEFAULT_MEMORY_SHARE = 0.9  # of the machine: before the system ends the whole server
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What one job may take; None for no limit.

    Attributes:
        seconds: of work; waiting for its turn is not counted.
        memory_bytes: of the whole process while it works.
    """

    seconds: float | None = None
    memory_bytes: int | None = None


_limits = JobLimits()  # of this process


def job_limits() -> JobLimits:
    """Those in force."""
    return _limits


def set_job_limits(limits: JobLimits) -> None:
    """Limit all jobs of this process, those at work included."""
    global _limits
    _limits = limits


def usual_memory_limit() -> int:
    """Bytes: nine tenths of the machine's memory, or of the container's."""
    total = int(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):  # no such system, or "max"
        total = min(total, int(CGROUP_LIMIT.read_text()))
    return int(DEFAULT_MEMORY_SHARE * total)


def too_long(seconds: float) -> InputError:
    """What a job is told that has worked for too long."""
    return InputError(
        f"this took longer than the {about(seconds)} that one job may work on this page",
        fix="choose a shorter text or fewer settings; what was stored on the way is kept",
    )


def too_large(memory_bytes: int) -> MemoryShortError:
    """What a job is told that has taken too much memory."""
    return MemoryShortError(
        f"this took more than the {memory_bytes / 2**30:.3g} GiB of memory that one job may take on this page",
        fix="choose a shorter text or fewer settings; what was stored on the way is kept",
    )
