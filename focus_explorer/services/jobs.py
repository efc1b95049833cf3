"""One piece of background work at a time, which the page starts, asks about and stops. It knows nothing of models."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from focus_explorer.errors import Cancelled, InputError


@dataclass(slots=True)
class Job:
    """Background work for one run; `state` is waiting, running, done, stopped or failed.

    Attributes:
        stage: what it does now, for a person.
        fraction: done, 0 to 1.
        result: what only this job knows, such as generated tokens.
    """

    kind: str
    run_id: str
    state: str = "waiting"
    stage: str = "Waiting for the model"
    fraction: float = 0.0
    message: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """Whether it still works."""
        return self.state in ("waiting", "running")

    def step(self, stage: str, fraction: float) -> None:
        """Say what comes next.

        Raises:
            Cancelled: it was asked to stop.
        """
        if self.stopped.is_set():
            raise Cancelled("stopped")
        self.state, self.stage, self.fraction = "running", stage, fraction

    def told(self) -> dict[str, Any]:
        """For the page."""
        state = "stopping" if self.live and self.stopped.is_set() else self.state
        return {
            "kind": self.kind,
            "run_id": self.run_id,
            "state": state,
            "stage": self.stage,
            "fraction": self.fraction,
            "message": self.message,
        }


@dataclass(slots=True)
class Jobs:
    """At most one job at a time, on a thread of its own."""

    newest: Job | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, kind: str, run_id: str, work: Callable[[Job], object]) -> None:
        """Start `work`.

        Raises:
            InputError: another job is still at work.
        """
        with self._lock:
            if self.newest is not None and self.newest.live:
                raise InputError("another comparison is being measured", fix="stop it, or wait for it")
            self.newest = job = Job(kind, run_id)
        threading.Thread(target=run_job, args=(job, work), daemon=True).start()

    def stop(self) -> None:
        """Ask the job to stop at its next layer; what it has measured is kept."""
        if self.newest is not None:
            self.newest.stopped.set()

    def told(self) -> dict[str, Any] | None:
        """The newest job for the page."""
        return None if self.newest is None else self.newest.told()


def run_job(job: Job, work: Callable[[Job], object]) -> None:
    """Do a job's work and keep how it ended; what went wrong is its message."""
    try:
        work(job)
        job.state, job.fraction = "done", 1.0
    except Cancelled:
        job.state = "stopped"
    except InputError as error:
        job.state, job.message = "failed", str(error)
    except Exception:
        job.state, job.message = "failed", "something went wrong inside Focus Explorer; see the server's log"
        traceback.print_exc()
