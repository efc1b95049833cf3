"""A corpus on a Ray cluster, through Ray Data: one model per worker, and workers that die are started again.

A document that a dead worker had not finished is given to a worker again; one that it had written is not analysed
twice.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

from focus_runtime.errors import InputError, first_line
from focus_runtime.routing.centroid_file import save_centroids
from focus_runtime.routing.centroids import Centroids
from focus_runtime.run.documents import CorpusJob, CorpusWorker, Outcome, Task
from focus_runtime.run.source import Document

WAVE_CHARACTERS = 1 << 28  # texts handed to Ray at once; workers load the model again for every further wave
BLOCK = 4  # documents a worker takes at a time: what is looked at again when it dies
DEATHS = 3  # workers that may die on one document before it is left out


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Where the workers run; without an address on this machine. Fractions of a GPU share one."""

    address: str | None = None
    workers: int = 2
    gpus_per_worker: float = 0.0


def check_ray() -> None:
    """Learn before any work whether Ray is installed."""
    try:
        importlib.import_module("ray.data")
    except ImportError as error:
        raise InputError(
            f"Ray is not installed ({error.name or error})",
            expected="Ray Data for --engine ray",
            fix="pip install 'focus-explorer[ray]'",
        ) from error


def work_on_ray(job: CorpusJob, tasks: Iterable[Task], cluster: Cluster) -> Iterator[Outcome]:
    """Do all documents on a cluster; outcomes come in the order in which documents are finished.

    Usage statistics stay off where the environment says RAY_USAGE_STATS_ENABLED=0, which the command line sets.
    """
    check_ray()
    import ray

    job = _on_disk(job)
    try:
        _connect(job, cluster)
        remaining = iter(tasks)
        for first in remaining:
            yield from _wave(job, _some(chain([first], remaining)), cluster)
    except ray.exceptions.RayTaskError:
        raise  # a defect of ours, with its traceback
    except ray.exceptions.RayError as error:
        fix = "the same command continues from what is done"
        raise InputError(f"Ray gave up: {first_line(error)}", fix=fix) from error
    finally:
        ray.shutdown()


def _on_disk(job: CorpusJob) -> CorpusJob:
    """The same job with its centroids in files in the folder of the results, where a restarted worker can read them."""
    written: dict[str, Any] = {}
    for name in ("centroids", "random_baseline"):
        if isinstance(centroids := getattr(job, name), Centroids):
            written[name] = job.folder.path / f".{name}.safetensors"
            save_centroids(centroids, written[name])
    return replace(job, **written)


def _check_address(address: str) -> None:
    """Ray itself tries for minutes to reach a machine that is not there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"nothing answers at {address}", expected="the address of a running Ray cluster", fix="check --address"
        ) from error


def _connect(job: CorpusJob, cluster: Cluster) -> None:
    import ray

    if cluster.address is not None:
        _check_address(cluster.address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    if cluster.address is None:
        quiet |= {"include_dashboard": False, "num_cpus": cluster.workers * (job.threads or 1) + 1}
        if not cluster.gpus_per_worker:
            quiet["num_gpus"] = 0
    try:
        ray.init(address=cluster.address or "local", **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        where = f"a Ray cluster at {cluster.address}" if cluster.address else "Ray on this machine"
        raise InputError(
            f"cannot start {where}: {first_line(error)}",
            expected="a running cluster of the same Ray and Python version",
            fix="check --address, set RAY_AUTH_MODE=token where it asks for a token, or use --engine local",
        ) from error
    gpus = ray.cluster_resources().get("GPU", 0)
    if gpus < cluster.gpus_per_worker:  # Ray would wait for one for ever
        raise InputError(
            f"Ray has {gpus:g} GPUs",
            expected=f"{cluster.gpus_per_worker:g} for each worker",
            fix="leave out --gpus-per-worker, or start machines with GPUs first",
        )


def _some(tasks: Iterator[Task]) -> list[dict[str, Any]]:
    """The next documents, at least one, of about `WAVE_CHARACTERS` in all."""
    rows: list[dict[str, Any]] = []
    size = 0
    for number, document in tasks:
        rows.append({"number": number, "name": document.name, "text": document.text})
        size += len(document.text)
        if size >= WAVE_CHARACTERS:
            break
    return rows


def _wave(job: CorpusJob, rows: list[dict[str, Any]], cluster: Cluster) -> Iterator[Outcome]:
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    workers = min(cluster.workers, len(rows))
    blocks = max(workers, -(-len(rows) // BLOCK))
    data = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
        _Actor,
        fn_constructor_args=(job,),
        batch_size=1,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=job.threads or 1,
        num_gpus=cluster.gpus_per_worker or None,
    )
    for row in data.iter_rows():
        outcome = Outcome(**row)
        if outcome.fatal:
            raise InputError(outcome.fatal)
        yield outcome


class _Actor:
    """A worker in the form of Ray Data: batches of one document in, one row out."""

    def __init__(self, job: CorpusJob) -> None:
        self._job = job
        self._worker: CorpusWorker | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        number, name = int(batch["number"][0]), str(batch["name"][0])
        try:  # also loading: an error while an actor starts would be hidden behind Ray's own
            if self._worker is None:
                self._worker = CorpusWorker(self._job)
            if self._job.folder.attempts(number) >= DEATHS:
                reason = f"{DEATHS} workers ended while they worked on it, perhaps for want of memory"
                outcome = Outcome(number=number, name=name, kind="too large", reason=reason)
            else:
                outcome = self._worker(number, Document(name, str(batch["text"][0])))
            self._job.folder.ended(number)
        except InputError as error:
            outcome = Outcome(number=number, name=name, fatal=str(error), worker=str(os.getpid()))
        return {key: [value] for key, value in asdict(outcome).items()}
