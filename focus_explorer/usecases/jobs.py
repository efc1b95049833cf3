"""Background work on threads: every job's state, progress, limits, cancellation and errors, in one place."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from focus_explorer.errors import Cancelled, InputError, MemoryShortError, device_failure
from focus_explorer.progress import about
from focus_explorer.usecases.users import LOG, acting_as, acting_user, request_id, working_for
from focus_explorer.views.payloads.runs import JobPayload, JobState

WAITING = "Waiting for the model"
DEFECT = "something went wrong inside Focus Explorer; see the server's log"
SMALLER = "choose a shorter text or fewer settings; what was stored on the way is kept"
LIVE = ("waiting", "running")
KEPT_JOBS = 32
DEFAULT_MEMORY_SHARE = 0.9  # of the machine: before the system ends the whole server
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
LOOK_SECONDS = 0.2  # between two looks at the memory of this process
TRIM_LOOKS = 150  # between two times that freed memory is given back, which the C library would keep
LAST_LOOKS = 25  # for a job to reach its next step, before the next one is ended too


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What one job may take: memory, and seconds of work, not of waiting for its turn. None: no limit."""

    seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Jobs of this process so far: (kind, state) of those live, how many ended so, and the seconds of each kind."""

    live: list[tuple[str, str]]
    ended: Counter[tuple[str, str]]
    seconds: dict[str, float]


# Of this process, whose end and whose memory concern all of its jobs.
_lock = threading.Lock()
_limits = JobLimits()
_live: set[Job] = set()
_ended: Counter[tuple[str, str]] = Counter()
_seconds: dict[str, float] = {}
_current: ContextVar[Job | None] = ContextVar("job", default=None)  # that this thread does


def job_limits() -> JobLimits:
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


@dataclass(slots=True, eq=False)
class Job:
    """One piece of background work; safe to read from any thread."""

    kind: str
    run_id: str = ""
    steady: bool = False  # its fraction grows evenly with time, so that the time left is known from what was done
    user: str | None = field(default_factory=acting_user)
    state: JobState = "waiting"
    stage: str = WAITING
    fraction: float = 0.0
    message: str = ""  # why it failed, or notes on the result
    partial: dict[str, Any] = field(default_factory=dict)  # published while the work runs, such as generated tokens
    result: Any = None
    error: Exception | None = None
    version: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _reached: InputError | None = None  # the limit that stopped it
    _since: float | None = None  # when it last began to work; None while it does not
    _worked: float = 0.0  # seconds before that
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _begun: tuple[float, float] | None = None  # when the fraction began to grow, and the fraction then
    _stepped: float = 0.0  # when the last step was published

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def working(self) -> bool:
        return self._since is not None

    @property
    def seconds(self) -> float:
        """How long it has worked; what it waited for its turn is not counted."""
        since = self._since
        return self._worked + (0.0 if since is None else time.monotonic() - since)

    def stop(self) -> None:
        """Request that it stops at its next step; results it has stored stay."""
        self._stop.set()

    def end(self, reached: InputError) -> None:
        """Request that it stops at its next step, and fails with the limit that it has reached."""
        self._reached = self._reached or reached
        self._stop.set()

    def stop_requested(self) -> bool:
        """Whether it is to stop, also since it took too long."""
        most = _limits.seconds
        if most is not None and self.seconds > most:
            problem = f"this took longer than the {about(most)} that one job may work on this page"
            self.end(InputError(problem, fix=SMALLER))
        return self._stop.is_set()

    def step(self, stage: str, fraction: float) -> None:
        if self.stop_requested():
            raise Cancelled("stopped")
        self._stepped = time.monotonic()
        if self._begun is None or fraction <= self._begun[1]:
            self._begun = self._stepped, fraction
        self._update(stage=stage, fraction=fraction, state="running")

    @property
    def seconds_left(self) -> float | None:
        """About how long it still takes; None where that is not known yet, or never."""
        if not self.steady or self.state != "running" or self._begun is None:
            return None
        begun, first = self._begun
        done = self.fraction - first
        if done <= 0:
            return None
        whole = (self._stepped - begun) / done * (1 - first)
        return max(0.0, begun + whole - time.monotonic())

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, at most so many seconds; returns whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.live, seconds)

    def status(self) -> JobPayload:
        """JSON-ready values for the page; a live job whose stop was requested is `stopping`."""
        return {
            "kind": self.kind,
            "run_id": self.run_id,
            "state": "stopping" if self.live and self.stop_requested() else self.state,
            "stage": self.stage,
            "fraction": self.fraction,
            "message": self.message,
            "seconds_left": self.seconds_left,
        }

    def execute(self, work: Callable[[Job], Any]) -> None:
        """Do the work on this thread, record how it ended, and log it."""
        started = self._since = time.monotonic()
        token = _current.set(self)
        try:
            result = work(self)
        except Cancelled:
            if self._reached is None:
                self._update(state="stopped")
            else:
                self._update(message=str(self._reached), error=self._reached, state="failed")
        except InputError as error:
            self._update(message=str(error), error=error, state="failed")
        except Exception as error:  # a thread has no caller to raise to: the log has the details, the page the fact
            LOG.exception("job failed", extra={"fields": {"kind": self.kind}})
            self._update(message=str(device_failure(error) or DEFECT), error=error, state="failed")
        else:
            self._update(result=result, fraction=1.0, state="done")
        finally:
            _current.reset(token)
            self._worked, self._since = self.seconds, None
            seconds = time.monotonic() - started
            with _lock:
                _live.discard(self)
                _ended[self.kind, self.state] += 1
                _seconds[self.kind] = _seconds.get(self.kind, 0.0) + seconds
            fields = {"kind": self.kind, "state": self.state, "seconds": round(seconds, 3)}
            LOG.info("job ended", extra={"fields": fields})

    def _update(self, **values: Any) -> None:
        """Set attributes in the given order: `state` last, since readers look at it first and take no lock."""
        with self._changed:
            for name, value in values.items():
                setattr(self, name, value)
            self.version += 1
            self._changed.notify_all()


@contextmanager
def waiting_for_turn() -> Iterator[None]:
    """The job that this thread does, if any, waits for its turn while the block runs."""
    job = _current.get()
    if job is None:
        yield
        return
    job._worked, job._since = job.seconds, None
    try:
        yield
    finally:
        job._since = time.monotonic()


def stop_requested() -> bool:
    """Whether the job that this thread does, if any, is to stop: for work that publishes no step for long."""
    job = _current.get()
    return job is not None and job.stop_requested()


def done_here(kind: str, work: Callable[[Job], Any]) -> Any:
    """Do work on this thread as a job of a kind, within its limits, and return its result."""
    job = _registered(Job(kind))
    job.execute(work)
    if job.error is not None:
        raise job.error
    if job.state == "stopped":
        raise InputError("the server ended this", fix="try again once it is back")
    return job.result


def _registered(job: Job) -> Job:
    with _lock:
        _live.add(job)
    return job


class JobRunner:
    """Starts jobs, each under a key and on a thread of its own; safe to call from several threads.

    Args:
        most_live: further jobs are refused with `busy` (problem and fix) while so many wait or run. None: no limit.
        kept: ended jobs that can still be looked up; the one used longest ago goes first.
    """

    def __init__(
        self,
        *,
        most_live: int | None = None,
        busy: tuple[str, str] = ("", ""),
        one_at_a_time: bool = False,
        kept: int = KEPT_JOBS,
    ) -> None:
        self._most_live, self._busy, self._kept = most_live, busy, kept
        self._turn = threading.Lock() if one_at_a_time else nullcontext()
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._lock = threading.Lock()

    def start(
        self,
        key: Hashable,
        work: Callable[[Job], Any],
        *,
        kind: str,
        run_id: str = "",
        reuse_done: bool = False,
        join: bool = False,
        steady: bool = False,
    ) -> Job:
        """Start work on a new thread, unless a job with this key is live; its return value becomes `Job.result`.

        Args:
            reuse_done: return a job of this key that is done instead of doing its work again.
            join: return a live job of this key where `most_live` are live too; for keys that name all of the work.
        """
        with self._lock:
            job = self._jobs.get(key)
            if join and job is not None and job.live:
                return job
            if self._most_live is not None and sum(job.live for job in self._jobs.values()) >= self._most_live:
                problem, fix = self._busy
                raise InputError(problem, fix=fix)
            if job is None or not (job.live or (reuse_done and job.state == "done")):
                self._jobs.pop(key, None)
                self._forget()
                job = self._jobs[key] = _registered(Job(kind, run_id, steady))
                threading.Thread(target=self._execute, args=(job, work, request_id()), daemon=True).start()
            self._jobs.move_to_end(key)
        return job

    def get(self, key: Hashable) -> Job | None:
        """The job of a key; None when none was started or it is no longer kept."""
        return self._jobs.get(key)

    def newest(self) -> Job | None:
        """The job started or looked up last; None when there is none."""
        with self._lock:
            return next(reversed(self._jobs.values()), None)

    def stop(self, key: Hashable) -> None:
        """Request that the job of a key stops; results it has stored stay."""
        if key in self._jobs:
            self._jobs[key].stop()

    def _execute(self, job: Job, work: Callable[[Job], Any], identity: str) -> None:
        # the log names the request that started it, and what it makes belongs to who did
        with working_for(identity), acting_as(job.user), self._turn:
            job.execute(work)

    def _forget(self) -> None:
        ended = [key for key, job in self._jobs.items() if not job.live]
        for key in ended[: max(0, len(ended) - self._kept)]:
            del self._jobs[key]


def live_jobs() -> list[Job]:
    """Jobs of this process that wait or run."""
    with _lock:
        return [job for job in _live if job.live]


def job_counts() -> JobCounts:
    """How many jobs of this process wait and run, and how many ended in which state."""
    live: list[tuple[str, str]] = [(job.kind, job.state) for job in live_jobs()]
    with _lock:
        return JobCounts(live, Counter(_ended), dict(_seconds))


def stop_all_jobs(seconds: float) -> list[Job]:
    """Request that every job of this process stops, and wait at most so many seconds; returns those still live."""
    jobs = live_jobs()
    for job in jobs:
        job.stop()
    deadline = time.monotonic() + seconds
    return [job for job in jobs if not job.wait(max(0.0, deadline - time.monotonic()))]


@contextmanager
def memory_watched() -> Iterator[None]:
    """End the job that takes more memory than one may, before the system ends the whole process."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch_memory, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def _watch_memory(ended: threading.Event) -> None:
    patience, job, look = 0, None, 0
    while not ended.wait(LOOK_SECONDS):
        look += 1
        if look % TRIM_LOOKS == 0:
            _trim()
        if job is not None and not job.live:
            job = None
            gc.collect()  # for which everything else waits half a second
            _trim()
        most = _limits.memory_bytes
        patience = max(0, patience - 1)
        if most is None or patience or resident_bytes() <= most:
            continue
        at_work = [job for job in live_jobs() if job.working and not job.stop_requested()]
        patience, job = LAST_LOOKS, min(at_work, key=lambda job: job.seconds, default=None)  # begun last
        if job is None:  # nothing to end: garbage, or what the page itself keeps
            gc.collect()
            _trim()
        else:
            problem = f"this took more than the {most / 2**30:.3g} GiB of memory that one job may take on this page"
            job.end(MemoryShortError(problem, fix=SMALLER))
            LOG.warning("a job took too much memory", extra={"fields": {"kind": job.kind}})


def _trim() -> None:
    """Let the C library return what it keeps for later, where it does."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
