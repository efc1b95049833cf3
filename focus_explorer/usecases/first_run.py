"""The run that an empty database begins with: a sample text, analysed once in the background for all visitors."""

from __future__ import annotations

import os
import threading

from focus_explorer import settings
from focus_explorer.progress import Progress
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.centroids.files import load_named_centroids, shipped_names
from focus_explorer.usecases.jobs import Job, JobRunner
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import sample_text
from focus_runtime.models.embedded import EMBEDDED, embedded_gguf

KEY = "first_run"
SAMPLE = "Novel"
LOADED = 0.5  # of the whole, on a machine that has not converted the model yet


class FirstRun:
    """The first run of one service's database; get it with `service.part(FirstRun)`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._jobs = JobRunner()
        self._lock = threading.Lock()

    def job(self, request: AnalyzeRequest, *, retry: bool = False) -> Job | None:
        """The job that makes the run, started where the database is empty and none was started.

        Args:
            request: model, centroids and settings.
            retry: start again after a failure.

        Returns:
            The job, which may have failed; None where the database has a run and no job is live.

        Raises:
            InputError: the database cannot be read.
        """
        with self._lock:
            job = self._jobs.get(KEY)
            if job is not None and job.live:
                return job
            if list_runs(self._service.database):
                return None
            if job is None or retry or job.state == "done":  # done: its run was deleted since
                job = self._jobs.start(KEY, lambda job: analyze_sample(self._service, request, job.step), kind=KEY)
            return job


def analyze_sample(service: Service, request: AnalyzeRequest, progress: Progress) -> str:
    """Analyse a sample text; the page makes the map of a layer when it shows one.

    Args:
        service: database and model.
        request: model, centroids and settings.
        progress: takes each stage and the fraction done.

    Returns:
        The run's id.

    Raises:
        InputError: the model, the centroids or the settings cannot be used, or the database not written.
    """

    def within(low: float, high: float) -> Progress:
        return lambda stage, fraction: progress(stage, low + (high - low) * fraction)

    progress("Loading libraries", 0.0)
    load_named_centroids(service.database, request.centroids)  # before the model: a bad file is known at once
    with service.models.lease(request.model, progress=within(0.0, LOADED)):
        return analyze(
            service,
            sample_text(SAMPLE),
            request,
            command="focus-explorer serve",
            progress=within(LOADED, 1.0),
        )


def check_first_run(service: Service, request: AnalyzeRequest) -> None:
    """Refuse names of a model or a centroid file that the first run could not use, before the page is served.

    Nothing is imported or loaded for the defaults, and nothing is checked where the database has a run.

    Raises:
        InputError: there is no such model or file, or the database cannot be used.
    """
    if list_runs(service.database):
        return
    with service.database.write():  # learn about a full disk or a foreign file
        pass
    if request.centroids not in (*shipped_names(), "random"):
        load_named_centroids(service.database, request.centroids)
    if request.model == EMBEDDED:
        embedded_gguf(settings.cache_dir())
    elif not os.path.isdir(os.path.expanduser(request.model)):
        from focus_runtime.models.loading import check_name

        check_name(request.model)
