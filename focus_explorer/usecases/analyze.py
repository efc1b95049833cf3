"""What is analysed and how: the requests of a text and of a corpus; a text analysed and stored, and the first run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from focus_explorer import settings
from focus_explorer.errors import Cancelled, ConfigError, StoreBusyError
from focus_explorer.progress import Progress, silent
from focus_explorer.usecases.centroids.files import SHIPPED_CENTROIDS, load_named_centroids
from focus_explorer.usecases.centroids.ready import RANDOM_SEED, calibrate, ready_centroids
from focus_explorer.usecases.jobs import Job, JobRunner, stop_requested
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import sample_text
from focus_explorer.usecases.users import new_owner
from focus_runtime.composition.changes import read_changes
from focus_runtime.config import TextOptions
from focus_runtime.models.embedded import EMBEDDED, embedded_gguf
from focus_runtime.run.source import GLOB, TEXT_COLUMN
from focus_runtime.run.source import is_corpus as is_corpus  # for the command line
from focus_runtime.text.special import chat_text, read_turns
from focus_runtime.text.tokens import check_text

if TYPE_CHECKING:
    from focus_runtime.run.trace import Timing, Trace

ENGINES = ("local", "ray")
PATIENCE_SECONDS = 1800.0  # that a finished analysis waits for a database that another program writes
Written = TypeVar("Written")

KEY = "first_run"
SAMPLE = "Novel"
LOADED = 0.5  # of the whole, on a machine that has not converted the model yet


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalyzeRequest(TextOptions):
    """What is analysed how: the settings of `FocusSettings` and `TextOptions`, and the model and centroids.

    Attributes:
        model: embedded name, Hugging Face id, folder or .gguf file.
        centroids: a shipped file's name such as default, random, an uploaded file's name or hash, or a path.
        chat: the text holds the turns of a chat, which go through the model's own template.
        device: auto, cpu, cuda, cuda:N, mps or split. None: the service's own; so of `dtype`.
        num_groups, routing_dim: K and d_g of random centroids.
    """

    model: str = settings.SETTINGS["model"].default
    centroids: str = settings.SETTINGS["centroids"].default
    chat: bool = False
    device: str | None = None
    dtype: str | None = None
    num_groups: int | None = None
    routing_dim: int | None = None

    def check(self) -> None:
        read_changes(self.changes)
        drawn = (self.num_groups, self.routing_dim, self.seed) != (None, None, RANDOM_SEED)
        if drawn and self.centroids != "random":
            raise ConfigError(
                "groups, routing size and seed are for random centroids; those of a file are fixed",
                fix='leave them out, or choose the centroids "random"',
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusRequest:
    """A corpus (a folder, a .jsonl or a .parquet file), and how it is analysed.

    Attributes:
        how: model, centroids, settings and most tokens of a document; repeats are not used.
        name: shown in lists; the source's own when empty.
        out: folder to write to. None: `corpora` in the database's folder.
        threads: of torch in each worker. None: all of the machine's, shared among its workers.
        tags, baseline: parts of speech; a pass with random centroids.
    """

    source: str
    how: AnalyzeRequest = field(default_factory=AnalyzeRequest)
    glob: str = GLOB
    text_column: str = TEXT_COLUMN
    name: str = ""
    out: str | None = None
    engine: str = "local"
    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float = 0.0
    threads: int | None = None
    tags: bool = True
    baseline: bool = True

    def check(self) -> None:
        self.how.check()
        least = {
            "workers": (self.workers, 1),
            "threads": (self.threads, 1),
            "gpus_per_worker": (self.gpus_per_worker, 0),
        }
        for name, (value, low) in least.items():
            if value is not None and value < low:
                raise ConfigError(f"{name} is {value}", expected=f"at least {low}")
        if self.engine not in ENGINES:
            raise ConfigError(f"engine is {self.engine!r}", expected=" or ".join(ENGINES))
        if self.engine == "local" and (self.address is not None or (self.workers or 1) > 1):
            raise ConfigError("several workers or an address", expected="--engine ray with them")


class CorpusStopped(Exception):  # noqa: N818 - it is no error
    """The user stopped; what is done is kept, and the same command resumes."""

    def __init__(self, corpus_id: str, done: int, total: int) -> None:
        self.corpus_id, self.done, self.total = corpus_id, done, total
        super().__init__(f"stopped with {done:,} of {total:,} documents done, which are kept")


def analyze(
    service: Service,
    text: str,
    request: AnalyzeRequest,
    *,
    command: str = "",
    progress: Progress = silent,
    announce: Callable[[str], None] = lambda message: None,
    stored: Callable[[str], None] | None = None,
) -> str:
    """Analyse a text and store the run.

    Args:
        command: recorded with the run.
        progress: takes each stage and the fraction done; a `Cancelled` that it raises stops the analysis.
        announce: takes remarks while it runs.
        stored: takes the id of a long text's run as soon as its numbers are known, and again after each further repeat
            of its timings, which are stored as they come. A stop then ends the repeats, and the run is kept.

    Returns the run's id.

    Raises:
        InputError: text, model, centroids or settings cannot be used, or the database not written.
        Cancelled: the job that this thread does was stopped before the run was stored.
    """
    from focus_runtime.run.text import Early
    from focus_runtime.run.text import analyze as run_both

    check_text(text)
    if request.chat:
        read_turns(text)  # before the model: what is no chat is known at once
    request.check()
    service.admit_run()
    with service.database.write():  # learn about a full disk or a foreign file before minutes of work
        pass
    progress("Loading the model", 0.0)
    read = load_named_centroids(service.database, request.centroids)  # before the model: a bad file is known at once
    with service.models.lease(request.model, device=request.device, dtype=request.dtype, progress=progress) as loaded:
        centroids = ready_centroids(read, loaded, request, request.seed)
        if (request.assignment or centroids.config.assignment) == "causal" and not centroids.has_potentials:
            progress("Balancing the groups", 0.01)
            calibrate(loaded, centroids, request.special_tokens)
        if request.chat:
            text = chat_text(loaded.tokenizer, text)
        kept = _Kept(service, command, stored or (lambda run_id: None), progress)
        try:
            trace = run_both(
                loaded.model,
                loaded.tokenizer,
                text,
                centroids,
                request,
                model_id=loaded.name,
                model_fingerprint=loaded.fingerprint,
                progress=progress,
                cancelled=stop_requested,
                announce=announce,
                early=None if stored is None else Early(measured=kept.write, timed=kept.add),
            )
        except Cancelled:
            if not kept.run_id:
                raise
    if not kept.run_id:
        progress("Saving", 0.98)
        kept.write(trace)
    return kept.run_id


class _Kept:
    """A run as it is stored, at once or before its timings are repeated; `tell` takes its id after each of these."""

    def __init__(self, service: Service, command: str, tell: Callable[[str], None], progress: Progress) -> None:
        self._service, self._command, self._tell, self._progress = service, command, tell, progress
        self._trace: Trace | None = None
        self.run_id = ""

    def write(self, trace: Trace) -> None:
        from focus_runtime.store.runs import write_run

        def write() -> str:
            return write_run(self._service.database, trace, command=self._command, owner=new_owner())

        self._trace = trace
        self.run_id = self._patiently(write)
        self._tell(self.run_id)

    def add(self, timings: list[Timing]) -> None:
        from focus_runtime.store.runs import add_timings

        trace = self._trace
        assert trace is not None
        self._patiently(lambda: add_timings(self._service.database, self.run_id, trace, timings))
        self._tell(self.run_id)

    def _patiently(self, write: Callable[[], Written]) -> Written:
        """What took minutes is not thrown away because another program keeps the database for longer than usual."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return write()
            except StoreBusyError:
                if time.monotonic() > deadline:
                    raise
                self._progress("Waiting for the database, which another program writes", 0.98)


class FirstRun:
    """The first run of one service's database; get it with `service.part(FirstRun)`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._jobs = JobRunner()
        self._lock = threading.Lock()

    def job(self, request: AnalyzeRequest, *, retry: bool = False) -> Job | None:
        """The job that makes the run, started where the database is empty and none was started; it may have failed.

        None: the database has a run and no job is live.
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
    """Analyse a sample text; the page makes the map of a layer when it shows one."""

    def within(low: float, high: float) -> Progress:
        return lambda stage, fraction: progress(stage, low + (high - low) * fraction)

    progress("Loading libraries", 0.0)
    load_named_centroids(service.database, request.centroids)  # before the model: a bad file is known at once
    with service.models.lease(request.model, progress=within(0.0, LOADED)):
        return analyze(
            service, sample_text(SAMPLE), request, command="focus-explorer serve", progress=within(LOADED, 1.0)
        )


def check_first_run(service: Service, request: AnalyzeRequest) -> None:
    """Refuse names of a model or a centroid file that the first run could not use, before the page is served.

    Nothing is imported or loaded for the defaults, and nothing is checked where the database has a run.
    """
    if list_runs(service.database):
        return
    with service.database.write():  # learn about a full disk or a foreign file
        pass
    if request.centroids not in (*SHIPPED_CENTROIDS, "random"):
        load_named_centroids(service.database, request.centroids)
    if request.model == EMBEDDED:
        embedded_gguf(settings.cache_dir())
    elif not os.path.isdir(os.path.expanduser(request.model)):
        from focus_runtime.models.loading import check_name

        check_name(request.model)
