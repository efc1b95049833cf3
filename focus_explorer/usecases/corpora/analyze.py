"""Analyse a corpus: find or begin it in the register, do what is missing, and report the progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from focus_explorer import settings
from focus_explorer.data.corpus import CorpusData
from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import CorpusRequest, CorpusStopped
from focus_explorer.usecases.centroids.files import load_named_centroids
from focus_explorer.usecases.centroids.ready import calibrate, calibration_ids, ready_centroids
from focus_explorer.usecases.models import LoadedModel
from focus_explorer.usecases.service import Service
from focus_runtime.config import TextOptions
from focus_runtime.models.devices import AUTO, Placement
from focus_runtime.routing.centroids import Centroids
from focus_runtime.run.documents import CorpusJob, Outcome, Task, check_gpu, work_here
from focus_runtime.run.folder import CorpusFolder
from focus_runtime.run.on_ray import Cluster, check_ray, work_on_ray
from focus_runtime.run.source import Document, Skipped, Source
from focus_runtime.run.text import versions
from focus_runtime.store.corpora import close_corpus, find_corpus, resume_corpus
from focus_runtime.text.special import added_tokens

Announce = Callable[[str], None]
Counted = Callable[[int, int], None]


@dataclass(slots=True)
class _Progress:
    skipped: list[Skipped] = field(default_factory=list)
    kept: int = 0
    done: int = 0
    model_seconds: float = 0.0
    work_seconds: float = 0.0
    workers: set[str] = field(default_factory=set)

    def add(self, outcome: Outcome) -> None:
        self.workers.add(outcome.worker)
        if outcome.kind:
            self.skipped.append(Skipped(outcome.name, outcome.kind, outcome.reason))
            return
        self.done += 1
        self.model_seconds += outcome.model_seconds
        self.work_seconds += outcome.seconds


def analyze_corpus(
    service: Service,
    request: CorpusRequest,
    *,
    command: str = "",
    counted: Counted = lambda done, total: None,
    announce: Announce = lambda message: None,
) -> dict[str, Any]:
    """Analyse every document of a source that is not done yet.

    Returns the corpus's summary (see `CorpusData.summary`), with the work of this command as `this_time`. Ctrl-C raises
    CorpusStopped; what is done is kept.
    """
    start = time.perf_counter()
    request.check()
    if request.engine == "ray":
        check_ray()
    out = Path(os.path.expanduser(request.out)) if request.out else service.database.path.parent / "corpora"
    path = Path(os.path.expanduser(request.source))  # Path.expanduser raises for an unknown user
    source = Source(path, request.glob, request.text_column, out, settings.MAX_TEXT_BYTES)
    names = source.names()
    with service.database.write():  # learn about a full disk or a foreign file before any work
        pass
    job, values = _prepare(service, request, out.resolve(), announce)
    values |= {"command": command, "source": str(source.path.resolve())}
    row = find_corpus(service.database, values)
    folder = CorpusFolder.of(row["folder"], row["corpus_id"])
    done = _Progress()
    with folder.lock():
        resume_corpus(service.database, row["corpus_id"], values)
        numbers = _numbered(folder, names, row["corpus_id"], announce)
        tasks, complete = _tasks(source, numbers, folder, done), False
        try:
            for outcome in _work(service, request, replace(job, folder=folder), tasks):
                done.add(outcome)
                counted(done.done + done.kept + len(done.skipped), len(names))
            counted(len(names), len(names))
            folder.sweep()  # a worker that was killed may have left a document half written
            complete = True
        except KeyboardInterrupt:
            raise CorpusStopped(row["corpus_id"], len(folder.numbers()), len(names)) from None
        finally:
            close_corpus(
                service.database,
                row["corpus_id"],
                documents=len(folder.numbers()),
                skipped=[asdict(each) for each in sorted(done.skipped, key=lambda each: numbers[each.name])],
                complete=complete,
            )
    return _summary(service, row["corpus_id"], done, time.perf_counter() - start)


def _prepare(
    service: Service, request: CorpusRequest, out: Path, announce: Announce
) -> tuple[CorpusJob, dict[str, Any]]:
    """The job without its folder, and the values the register records."""
    how = request.how
    read = load_named_centroids(service.database, how.centroids)  # before the model: a bad file is known at once
    with _lease(service, request) as loaded:
        centroids = ready_centroids(read, loaded, how, how.seed)
        special_tokens = added_tokens(loaded.tokenizer, how.special_tokens).choice
    elsewhere = Placement("cuda", how.dtype or AUTO)  # its workers choose what is left to auto
    placement = elsewhere if _gpus_elsewhere(request) else service.models.place(*_device_and_dtype(request))
    tagger = _tagger(announce) if request.tags else ""
    threads = request.threads or (1 if request.engine == "ray" and not request.gpus_per_worker else None)
    job = CorpusJob(
        model=how.model,
        cache_dir=settings.cache_dir(),
        fingerprint=loaded.fingerprint,
        centroids=centroids,
        random_baseline=None,
        options=TextOptions(**{each.name: getattr(how, each.name) for each in fields(TextOptions)}),
        tags=bool(tagger),
        folder=CorpusFolder(out),
        device=placement.device,
        dtype=placement.dtype,
        threads=threads,
    )
    identity = {
        "text_column": request.text_column,
        "glob": request.glob,
        "max_tokens": how.max_tokens,
        "tagger": tagger,
        "baseline_seed": _baseline_seed(centroids) if request.baseline else None,
    }
    if placement.dtype != "float32":  # float32 is left out: older corpora do not record it
        identity["dtype"] = placement.dtype
    if special_tokens is not None:  # older corpora do not record them
        identity["special_tokens"] = special_tokens
    if how.backend != AUTO:
        identity["backend"] = how.backend
    values = {
        "name": request.name,
        "folder": str(out),
        "model_id": loaded.name,
        "model_fingerprint": loaded.fingerprint,
        "centroids_name": centroids.name,
        "centroids_sha256": centroids.sha256,
        "config": job.options.of(centroids.config).to_dict(),
        "settings": identity,
        "versions": versions(),
    }
    return job, values


def _gpus_elsewhere(request: CorpusRequest) -> bool:
    """Whether Ray workers use the GPUs, which may be on other machines; this process may have none."""
    return request.engine == "ray" and request.gpus_per_worker > 0


def _device_and_dtype(request: CorpusRequest) -> tuple[str | None, str | None]:
    """Where this process runs the model, and in which precision."""
    if _gpus_elsewhere(request):
        return "cpu", AUTO
    return "cuda" if request.gpus_per_worker else request.how.device, request.how.dtype


def _lease(service: Service, request: CorpusRequest) -> AbstractContextManager[LoadedModel]:
    device, dtype = _device_and_dtype(request)
    if request.gpus_per_worker and device == "cuda":
        check_gpu()
    return service.models.lease(request.how.model, device=device, dtype=dtype)


def _tagger(announce: Announce) -> str:
    from focus_runtime.text.tagging import check_tagger, tagger_name

    try:
        check_tagger()
    except InputError as error:
        announce(f"no parts of speech: {error}")
        return ""
    return tagger_name()


def _numbered(folder: CorpusFolder, names: list[str], corpus_id: str, announce: Announce) -> dict[str, int]:
    """Numbers of all documents by name, once the folder holds none but whole documents of the source."""
    folder.sweep()
    numbers, gone = folder.numbering(names)
    for number in gone:
        folder.remove(number)
    if gone:
        many = "documents are" if len(gone) > 1 else "document is"
        announce(f"{len(gone):,} {many} no longer in the source; what was kept of them is removed")
    if there := len(folder.numbers()):
        announce(f"continues corpus {corpus_id}: {there:,} of {len(names):,} documents are there already")
    return numbers


def _tasks(source: Source, numbers: dict[str, int], folder: CorpusFolder, done: _Progress) -> Iterator[Task]:
    """Documents to do: new ones, and those whose text has changed."""
    for document in source.read():
        number = numbers.get(document.name)
        if number is None:  # it was added after the listing; the next command takes it
            continue
        if isinstance(document, Skipped):
            folder.remove(number)
            done.skipped.append(document)
        elif folder.tokens_of(number, document.sha256) is not None:
            done.kept += 1
        else:
            yield number, Document(document.name, document.text)


def _work(service: Service, request: CorpusRequest, job: CorpusJob, tasks: Iterator[Task]) -> Iterator[Outcome]:
    first = next(tasks, None)
    if first is None:  # nothing to do: balancing random centroids would take longer than all of it
        return
    tasks = chain([first], tasks)
    with _lease(service, request) as loaded:
        job = _balanced(request, job, loaded)
        if request.engine == "local":
            yield from work_here(job, tasks, (loaded.model, loaded.tokenizer))
            return
    cluster = Cluster(address=request.address, workers=request.workers or 2, gpus_per_worker=request.gpus_per_worker)
    yield from work_on_ray(job, tasks, cluster)


def _balanced(request: CorpusRequest, job: CorpusJob, loaded: LoadedModel) -> CorpusJob:
    """The job with potentials where they are needed, and random centroids of that shape, balanced at its setting."""
    own, how = job.centroids, request.how
    assert isinstance(own, Centroids)
    causal = (job.options.assignment or own.config.assignment) == "causal"
    if causal and not own.has_potentials:
        calibrate(loaded, own, how.special_tokens)
    if not request.baseline:
        return job
    from focus_runtime.run.random_baseline import random_baseline

    random = random_baseline(
        loaded.model,
        job.options.of(own.config),
        seed=_baseline_seed(own),
        layers=own.routers,
        calibrate_on=calibration_ids(loaded, how.special_tokens) if causal else None,
    )
    return replace(job, random_baseline=random)


def _baseline_seed(own: Centroids) -> int:
    from focus_runtime.run.random_baseline import COMPARISON_SEED, baseline_seed, random_seed

    return baseline_seed(random_seed(own), COMPARISON_SEED)


def _summary(service: Service, corpus_id: str, done: _Progress, seconds: float) -> dict[str, Any]:
    summary = CorpusData(service.database, corpus_id).summary()
    summary["this_time"] = {
        "documents": done.done,
        "kept": done.kept,
        "model_seconds": done.model_seconds,
        "document_seconds": done.work_seconds,
        "seconds": seconds,
        "workers": len(done.workers),
    }
    return summary
