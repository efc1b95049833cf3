"""Comparisons in the background: one at a time for each service, started and stopped from the page."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, cast

from focus_explorer.data.queries import fetch_run
from focus_explorer.usecases.compare.costs import check_token, explain_token, measure_heads
from focus_explorer.usecases.compare.lengths import check_seconds, measure_lengths
from focus_explorer.usecases.compare.settings import check_grid, measure_grid
from focus_explorer.usecases.compare.what_if import WhatIfs, checked_changes, repeated_by, save_changed
from focus_explorer.usecases.generate import check_generation, generate
from focus_explorer.usecases.jobs import JobRunner
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.comparisons import GeneratedPayload
from focus_explorer.views.payloads.runs import JobAnswerPayload, JobPayload

BUSY = ("another comparison is being measured", "stop it, or wait for it")


class Comparisons:
    """The background comparisons of one service; what starts one refuses it at once where it cannot be measured."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._jobs = JobRunner(most_live=1, busy=BUSY)

    def status(self) -> JobPayload | None:
        job = self._jobs.newest()
        return None if job is None else job.status()

    def stop(self) -> JobAnswerPayload:
        """Request that the comparison stops at its next layer; what it has measured is kept."""
        job = self._jobs.newest()
        if job is not None:
            job.stop()
        return {"job": self.status()}

    def _start(self, kind: str, run_id: str, work: Callable[..., Any], *more: Hashable, **how: Any) -> None:
        """Start work that takes `progress`; `more` tells it from others of its kind and run."""
        fetch_run(self.service.database, run_id)
        self._jobs.start((kind, run_id, *more), lambda job: work(progress=job.step), kind=kind, run_id=run_id, **how)

    def start_grid(self, run_id: str, top_k: Sequence[int], window: Sequence[int], repeats: int) -> None:
        check_grid(fetch_run(self.service.database, run_id), top_k, window, repeats)
        work = partial(measure_grid, self.service, run_id, top_k, window, repeats=repeats)
        self._start("grid", run_id, work, steady=True)

    def start_lengths(self, run_id: str, layer: int, seconds: float) -> None:
        check_seconds(seconds)
        self._start("lengths", run_id, partial(measure_lengths, self.service, run_id, layer, seconds=seconds))

    def start_links(self, run_id: str, token: int) -> None:
        check_token(fetch_run(self.service.database, run_id), token)
        self._start("links", run_id, partial(explain_token, self.service, run_id, token), token)

    def start_heads(self, run_id: str) -> None:
        self._start("heads", run_id, partial(measure_heads, self.service, run_id))

    def start_what_if(self, run_id: str, texts: Sequence[str]) -> None:
        """Start `WhatIfs.measure`, unless the same is being measured: two pages may open one link."""
        checked_changes(self.service, run_id, texts)
        work = partial(self.service.part(WhatIfs).measure, run_id, texts)
        self._start("what_if", run_id, work, tuple(texts), join=True)

    def start_saving(self, run_id: str, texts: Sequence[str]) -> None:
        checked_changes(self.service, run_id, texts)
        work = partial(save_changed, self.service, run_id, texts, command=repeated_by(run_id, texts))
        self._start("what_if_save", run_id, work)

    def saved(self, run_id: str) -> str | None:
        """The run that was saved last, while that is the newest comparison and of this run."""
        job = self._jobs.newest()
        if job is None or job.kind != "what_if_save" or job.run_id != run_id or job.state != "done":
            return None
        return str(job.result)

    def start_generation(self, run_id: str, prompt: str, *, max_tokens: int, temperature: float, seed: int) -> None:
        check_generation(self.service, run_id, prompt, max_tokens, temperature)
        self._jobs.start(
            ("generation", run_id),
            lambda job: generate(
                self.service, run_id, prompt, job, max_tokens=max_tokens, temperature=temperature, seed=seed
            ),
            kind="generation",
            run_id=run_id,
        )

    def generated(self, run_id: str) -> GeneratedPayload:
        """Text generated so far, by mode, when the newest comparison is a generation of this run; else empty."""
        job = self._jobs.newest()
        if job is None or job.kind != "generation" or job.run_id != run_id:
            return {}
        return cast(GeneratedPayload, dict(job.partial))
