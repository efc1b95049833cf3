"""The state of background work."""

from __future__ import annotations

from typing import Literal, TypedDict

JobState = Literal["waiting", "running", "done", "stopped", "failed"]


class JobPayload(TypedDict):
    """The state of a background job; `seconds_left` where its work is even and some of it is done."""

    kind: str
    run_id: str
    state: Literal["waiting", "running", "stopping", "done", "stopped", "failed"]
    stage: str
    fraction: float
    message: str
    seconds_left: float | None


class JobAnswerPayload(TypedDict):
    """An answer that holds a job alone."""

    job: JobPayload | None
