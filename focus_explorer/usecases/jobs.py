"""Background work on threads: states, progress, cancellation and errors of every job, in one place."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from focus_explorer.errors import Cancelled, InputError, device_failure
from focus_explorer.usecases.acting_user import acting_as, acting_user
from focus_explorer.usecases.job_limits import job_limits, too_long
from focus_explorer.usecases.logs import LOG, request_id, working_for
from focus_explorer.views.payloads.runs import JobPayload, JobState

WAITING = "Waiting for the model"
DEFECT = "something went wrong inside Focus Explorer; see the server's log"
LIVE = ("waiting", "running")
KEPT_JOBS = 32


@dataclass(slots=True)
class JobCounts:
    """Jobs of a process.

    Attributes:
        live: (kind, state) of each that waits or runs.
        ended: (kind, state) -> how many ended so.
        seconds: kind -> seconds that its ended jobs ran.
    """

    live: list[tuple[str, str]] = field(default_factory=list)
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, state: str, seconds: float) -> None:
        """Count a job that has ended."""
        with self._lock:
            self.ended[kind, state] += 1
            self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds

    def copy(self, live: list[tuple[str, str]]) -> JobCounts:
        """The counts as they are now, with those that are live."""
        with self._lock:
            return JobCounts(live, Counter(self.ended), dict(self.seconds))


_COUNTS = JobCounts()  # of this process


@dataclass(slots=True, eq=False)
class Job:
    """One piece of background work; safe to read from any thread.

    Attributes:
        kind: what is done, such as `grid`.
        run_id: of the run it is done for; empty where there is none.
        state: waiting, running, done, stopped or failed.
        stage: current step, for a person.
        fraction: done so far, 0 to 1.
        message: why it failed, or notes on the result.
        partial: results published while the work runs, such as generated tokens.
        result: return value of the work, once it is done.
        error: what the work raised, once it failed.
        steady: its fraction grows evenly with time, so that the time left is known from what was done.
        user: for whom it works, see acting_user.py.
    """

    kind: str
    run_id: str = ""
    steady: bool = False
    user: str | None = field(default_factory=acting_user)
    state: JobState = "waiting"
    stage: str = WAITING
    fraction: float = 0.0
    message: str = ""
    partial: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: Exception | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _reached: InputError | None = None  # the limit that stopped it
    _since: float | None = None  # when it last began to work; None while it does not
    _worked: float = 0.0  # seconds before that
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _version: int = 0
    _begun: tuple[float, float] | None = None  # when the fraction began to grow, and the fraction then
    _stepped: float = 0.0  # when the last step was published

    @property
    def live(self) -> bool:
        """Whether it waits or runs."""
        return self.state in LIVE

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    @property
    def working(self) -> bool:
        """Whether it computes, and does not wait for its turn."""
        return self._since is not None

    @property
    def seconds(self) -> float:
        """How long it has worked; what it waited for its turn is not counted."""
        since = self._since
        return self._worked + (0.0 if since is None else time.monotonic() - since)

    def stop(self) -> None:
        """Request that it stops at its next step."""
        self._stop.set()

    def end(self, reached: InputError) -> None:
        """Request that it stops at its next step, and fails with the limit that it has reached."""
        self._reached = self._reached or reached
        self._stop.set()

    def stop_requested(self) -> bool:
        """Whether it is to stop, also since it took too long; work passes this on as `cancelled`."""
        most = job_limits().seconds
        if most is not None and self.seconds > most:
            self.end(too_long(most))
        return self._stop.is_set()

    def controls(self) -> dict[str, Any]:
        """The arguments `progress` and `cancelled` by which work tells how far it is, and is limited and stopped."""
        return {"progress": self.step, "cancelled": self.stop_requested}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It waits for its turn while the block runs."""
        self._rest()
        try:
            yield
        finally:
            self._since = time.monotonic()

    def step(self, stage: str, fraction: float) -> None:
        """Publish the next step of the work.

        Raises:
            Cancelled: a stop was requested, or it took too long.
        """
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

    def changes(self) -> Iterator[Job]:
        """The job itself, now and after every change, for the last time when it has ended."""
        seen = -1
        while True:
            with self._changed:
                self._changed.wait_for(lambda known=seen: self._version != known)  # type: ignore[misc]
                seen, live = self._version, self.live
            yield self
            if not live:
                return

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
        token = _CURRENT.set(self)
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
            _CURRENT.reset(token)
            self._rest()
            seconds = time.monotonic() - started
            _COUNTS.add(self.kind, self.state, seconds)
            fields = {"kind": self.kind, "state": self.state, "seconds": round(seconds, 3)}
            LOG.info("job ended", extra={"fields": fields})

    def _rest(self) -> None:
        self._worked, self._since = self.seconds, None

    def _update(self, **values: Any) -> None:
        """Set attributes in the given order: `state` last, since readers look at it first and take no lock."""
        with self._changed:
            for name, value in values.items():
                setattr(self, name, value)
            self._version += 1
            self._changed.notify_all()


_CURRENT: ContextVar[Job | None] = ContextVar("job", default=None)  # that this thread does


@contextmanager
def waiting_for_turn() -> Iterator[None]:
    """The job that this thread does, if any, waits for its turn while the block runs."""
    job = _CURRENT.get()
    with nullcontext() if job is None else job.paused():
        yield


def done_here(kind: str, work: Callable[[Job], Any]) -> Any:
    """Do work on this thread as a job, within its limits, and return its result.

    Args:
        kind: of the job.
        work: called with the job.

    Raises:
        InputError: what the work raised, the limit it reached, or the server ends.
    """
    job = Job(kind)
    with _here_lock:
        _here.add(job)
    try:
        job.execute(work)
    finally:
        with _here_lock:
            _here.discard(job)
    if job.error is not None:
        raise job.error
    if job.state == "stopped":
        raise InputError("the server ended this", fix="try again once it is back")
    return job.result


_here: set[Job] = set()  # jobs that no runner has started
_here_lock = threading.Lock()


class JobRunner:
    """Starts jobs, each under a key and on a thread of its own; safe to call from several threads.

    Args:
        most_live: further jobs are refused while so many wait or run; None for no limit.
        busy: problem and fix that a refused start names.
        one_at_a_time: jobs started meanwhile wait for their turn.
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
        _RUNNERS.add(self)

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
        """Start work, unless a job of this key is live already.

        Args:
            key: under which the job is looked up.
            work: called with the job on a thread of its own; what it returns becomes `Job.result`.
            kind: of the job.
            run_id: of the job.
            reuse_done: return a job of this key that is done instead of doing its work again.
            join: return a live job of this key where `most_live` are live too; for keys that name all of the work.
            steady: the fraction it publishes grows evenly with time.

        Returns:
            The new job, or the one of this key that is live (or done).

        Raises:
            InputError: `most_live` jobs are live.
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
                job = self._jobs[key] = Job(kind, run_id, steady)
                threading.Thread(target=self._execute, args=(job, work, request_id()), daemon=True).start()
            self._jobs.move_to_end(key)
        return job

    def get(self, key: Hashable) -> Job | None:
        """The job of a key; None when none was started or it is no longer kept."""
        return self._jobs.get(key)

    def live(self) -> list[Job]:
        """Jobs that wait or run."""
        with self._lock:
            return [job for job in self._jobs.values() if job.live]

    def newest(self) -> Job | None:
        """The job started or looked up last; None when there is none."""
        with self._lock:
            return next(reversed(self._jobs.values()), None)

    def stop(self, key: Hashable) -> None:
        """Request that the job of a key stops; results it has stored stay."""
        job = self._jobs.get(key)
        if job is not None:
            job.stop()

    def _execute(self, job: Job, work: Callable[[Job], Any], identity: str) -> None:
        # the log names the request that started it, and what it makes belongs to who did
        with working_for(identity), acting_as(job.user), self._turn:
            job.execute(work)

    def _forget(self) -> None:
        ended = [key for key, job in self._jobs.items() if not job.live]
        for key in ended[: max(0, len(ended) - self._kept)]:
            del self._jobs[key]


_RUNNERS: weakref.WeakSet[JobRunner] = weakref.WeakSet()  # of this process, whose end concerns them all


def live_jobs() -> list[Job]:
    """Jobs of this process that wait or run."""
    with _here_lock:
        here = list(_here)
    return [*here, *(job for runner in list(_RUNNERS) for job in runner.live())]


def job_counts() -> JobCounts:
    """How many jobs of this process wait and run, and how many ended in which state."""
    return _COUNTS.copy([(job.kind, job.state) for job in live_jobs()])


def stop_all_jobs(seconds: float) -> list[Job]:
    """Request that every job of this process stops, and wait at most so many seconds; returns those still live."""
    jobs = live_jobs()
    for job in jobs:
        job.stop()
    deadline = time.monotonic() + seconds
    return [job for job in jobs if not job.wait(max(0.0, deadline - time.monotonic()))]
