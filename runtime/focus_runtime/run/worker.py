"""The work on a corpus, cut into documents: the same code for one process and for many workers.

A `CorpusJob` holds everything a worker needs and can be sent to another machine; a `CorpusWorker` turns documents into
files and returns an `Outcome` for each.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from focus_runtime.errors import ModelError, TextError
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.routing.centroids import Centroids
from focus_runtime.run.document import DocumentAnalyst, DocumentOptions
from focus_runtime.run.folder import CorpusFolder
from focus_runtime.run.source import Document, Skipped

Task = tuple[int, Document]


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusJob:
    """What is done with every document.

    Attributes:
        model, cache_dir: as `load_model` takes them.
        device, dtype: as `place` takes them, on the worker.
        fingerprint: what the model's must be, so that all workers run the same weights.
        centroids, random_baseline: learned centroids, and random ones or None, or files of them; both with potentials
            where they are needed.
        options: how a document is analysed.
        threads: of torch in each worker; torch's own choice when None.
        folder: where the documents go.
    """

    model: str
    cache_dir: Path
    fingerprint: str
    centroids: Centroids | Path
    random_baseline: Centroids | Path | None
    options: DocumentOptions
    folder: CorpusFolder
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of a document.

    Attributes:
        number, name: which one.
        tokens: analysed tokens; 0 when skipped.
        model_seconds, seconds: in forward passes; in all, both by the worker's clock. A document that a worker which
            died had finished has none in forward passes.
        kind, reason: why it was skipped, "" when it was not.
        fatal: why no document can be analysed any more, "" as a rule.
        worker: machine and process.
    """

    number: int
    name: str
    tokens: int = 0
    model_seconds: float = 0.0
    seconds: float = 0.0
    kind: str = ""
    reason: str = ""
    fatal: str = ""
    worker: str = ""


class CorpusWorker(AbstractContextManager["CorpusWorker"]):
    """One model with Focus on it, for many documents.

    Args:
        loaded: model and tokenizer, when they are in memory already.

    Raises:
        InputError: the model cannot be loaded, is another one, or does not fit the centroids.
    """

    def __init__(self, job: CorpusJob, loaded: tuple[Any, Any] | None = None) -> None:
        self.job = job
        self._threads = torch.get_num_threads()
        if job.threads is not None:
            torch.set_num_threads(job.threads)
        model, tokenizer = loaded or _load(job)
        random_baseline = None if job.random_baseline is None else _read(job.random_baseline)
        self._analyst = DocumentAnalyst(model, tokenizer, _read(job.centroids), random_baseline, job.options)
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    def __exit__(self, *_: object) -> None:
        self._analyst.__exit__()
        torch.set_num_threads(self._threads)

    def __call__(self, number: int, document: Document) -> Outcome:
        """Analyse a document and write it, unless it is there already from the same text.

        Raises:
            StoreError: it cannot be written.
        """
        start = time.perf_counter()
        folder, model_seconds = self.job.folder, 0.0
        if folder.text_hash(number) == document.sha256:  # a worker had written it before it was killed
            tokens = folder.num_tokens(number)
        else:
            try:
                tables = self._analyst.analyze(document)
            except TextError as error:
                skipped = Skipped.because(document.name, error)
                folder.remove(number)
                return Outcome(
                    number=number, name=document.name, kind=skipped.kind, reason=skipped.reason, worker=self._name
                )
            folder.write(number, tables)
            row = tables["document"].to_pylist()[0]
            tokens, model_seconds = row["num_tokens"], row["model_seconds"]
        return Outcome(
            number=number,
            name=document.name,
            tokens=tokens,
            model_seconds=model_seconds,
            seconds=time.perf_counter() - start,
            worker=self._name,
        )


def _read(centroids: Centroids | Path) -> Centroids:
    return load_centroids(centroids) if isinstance(centroids, Path) else centroids


def check_gpu() -> None:
    """Refuse `--gpus-per-worker` in a process without a GPU, before any work.

    Raises:
        ModelError: it sees no GPU.
    """
    if not torch.cuda.is_available():
        raise ModelError(f"{socket.gethostname()} has no GPU for it", expected="one", fix="leave out --gpus-per-worker")


def _load(job: CorpusJob) -> tuple[Any, Any]:
    from focus_runtime.models.devices import place
    from focus_runtime.models.loading import fingerprint, load_model

    if job.device == "cuda":
        check_gpu()
    placement = place(job.device, job.dtype)
    model, tokenizer = load_model(job.model, device=placement.device, dtype=placement.dtype, cache_dir=job.cache_dir)
    if fingerprint(model) != job.fingerprint:
        raise ModelError(
            f"{job.model} on {socket.gethostname()} has other weights than where the command was started",
            expected="the same model everywhere",
        )
    return model, tokenizer


def work_here(job: CorpusJob, tasks: Iterable[Task], loaded: tuple[Any, Any]) -> Iterator[Outcome]:
    """Do all documents in this process, in order.

    Args:
        job: what is done with every document.
        tasks: numbers and documents.
        loaded: model and tokenizer.

    Raises:
        InputError: the model does not fit, or a document cannot be written.
    """
    with CorpusWorker(job, loaded) as worker:
        for number, document in tasks:
            yield worker(number, document)
