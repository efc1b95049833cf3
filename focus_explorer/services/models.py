"""A stored run's model, centroids and tokens, for measuring more about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.services.service import RANDOM_SEED, AnalyzeRequest, Service
from focus_runtime.config import FocusConfig
from focus_runtime.routing.centroid_file import load_centroids
from focus_runtime.routing.centroids import Centroids


@contextmanager
def borrowed(service: Service, run: dict[str, Any]) -> Iterator[Any]:
    """The model of a run, for as long as nobody else may use it.

    Raises:
        InputError: it cannot be loaded, or has other weights than the run's.
    """
    with service._model_lock:
        loaded = service.load_model(run["model_id"])
        if run["model_fingerprint"] and loaded.fingerprint != run["model_fingerprint"]:
            raise InputError(
                f"{run['model_id']} has other weights than when this run was made", fix="explore the text again"
            )
        yield loaded


def run_config(run: dict[str, Any]) -> FocusConfig:
    """The settings a run was executed with."""
    return FocusConfig.from_json(run["config"])


def run_centroids(service: Service, run: dict[str, Any], loaded: Any, path: str | None = None) -> Centroids:
    """The centroids a run was made with, found again by their hash, balanced where the run needed that.

    Args:
        path: their name or file, when the caller knows.

    Raises:
        NotFoundError: they are neither shipped, random nor uploaded.
    """
    config = run_config(run)
    read = service.load_centroids(path or _centroid_name(service, run))
    found = service._fit(read, loaded, AnalyzeRequest(top_k=config.top_k, window=config.window))
    if config.assignment == "causal" and not found.has_potentials:
        service._calibrate(loaded, found)
    return found


def run_random_seed(service: Service, run: dict[str, Any]) -> int | None:
    """Seed that a run's untrained centroids were drawn from; None for trained ones and for a file that is not here."""
    from focus_runtime.baselines.random_groups import random_seed

    try:
        centroids = service.load_centroids(_centroid_name(service, run))
    except InputError:
        return None
    return RANDOM_SEED if centroids is None else random_seed(centroids)


def _centroid_name(service: Service, run: dict[str, Any]) -> str:
    digest = str(run["centroids_sha256"])
    if run["centroids_name"] == "random":
        return "random"
    if digest in {row["sha256"] for row in service.centroid_files()}:
        return digest
    if digest == load_centroids("default").sha256:
        return "default"
    raise NotFoundError(
        f"the centroid file {run['centroids_name']} of this run is not here", fix="upload it on the Centroids page"
    )


def run_ids(service: Service, run_id: str) -> list[int]:
    """The token ids of a run's text."""
    return [int(value) for value in fetch(service.database, "tokens", run_id=run_id)["token_id"].to_pylist()]
