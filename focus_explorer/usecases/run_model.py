"""The model and centroids a stored run was made with, for measuring more of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.progress import Progress, silent
from focus_explorer.usecases.analyze import AnalyzeRequest
from focus_explorer.usecases.centroids.files import load_named_centroids, shipped_name, uploaded_centroids
from focus_explorer.usecases.centroids.ready import calibrate, ready_centroids
from focus_explorer.usecases.models import LoadedModel
from focus_explorer.usecases.runs import run_config, run_special_tokens
from focus_explorer.usecases.service import Service
from focus_runtime.composition.changes import Change, last_token, read_changes
from focus_runtime.config import FocusConfig, FocusSettings
from focus_runtime.failures import Advice
from focus_runtime.routing.places import CENTROIDS_FILE, cached, hub_name

if TYPE_CHECKING:
    from focus_runtime.composition.attach import FocusModel
    from focus_runtime.routing.centroids import Centroids


SHORTER_RUN = Advice(
    fits="explore the text again with the longest text set to {0} (--max-tokens {0}), and measure that run",
    otherwise="explore less of the text (--max-tokens) and measure that run, or close other programs",
)


@contextmanager
def lease_run_model(
    service: Service, run: dict[str, Any], advice: Advice = SHORTER_RUN, *, progress: Progress = silent
) -> Iterator[LoadedModel]:
    """A lease of the model a run was made with, in its precision, on its device or, where that is missing, the CPU."""
    where = {"device": device_here(run["device"]), "dtype": run["dtype"]}
    with service.models.lease(run["model_id"], **where, advice=advice, progress=progress) as loaded:
        if run["model_fingerprint"] and loaded.fingerprint != run["model_fingerprint"]:
            raise InputError(
                f"{run['model_id']} has other weights than when this run was made", fix="explore the text again"
            )
        yield loaded


def device_here(recorded: str) -> str:
    """The device a run was executed on, or the CPU where this machine lacks it."""
    from focus_runtime.models.devices import SPLIT, devices

    name = SPLIT if " + " in recorded else recorded
    return name if name in {device.name for device in devices()} else "cpu"


def backend_again(execution: Mapping[str, Any]) -> str:
    """The backend that measures a run again; before 0.2, which did not store the request, one that was named."""
    executed = execution["backend"]
    return execution.get("requested_backend") or (
        executed if executed in ("reference", "decomposed", "flex") else "auto"
    )


def run_centroids(service: Service, run: dict[str, Any], loaded: LoadedModel, name: str | None = None) -> Centroids:
    """The centroids a run was made with, looked up by their hash, balanced where the run needed that."""
    config = run_config(run)
    read = load_named_centroids(service.database, name or _centroid_name(service, run))
    centroids = ready_centroids(read, loaded, config, run["seed"])
    if config.assignment == "causal" and not centroids.has_potentials:
        calibrate(loaded, centroids, run_special_tokens(run))
    return centroids


def compose_run(
    service: Service, run: dict[str, Any], loaded: LoadedModel, *, assignment: str | None = None, backend: str = "auto"
) -> FocusModel:
    """Focus with a run's centroids and settings on its model, without changes made by hand; detach it afterwards."""
    from focus_runtime.composition.attach import compose

    config = run_config(run)
    settings = FocusSettings.from_config(config, assignment=assignment or config.assignment)
    return compose(loaded.model, run_centroids(service, run, loaded), settings=settings, backend=backend)


@contextmanager
def composed_run(
    service: Service, run: dict[str, Any], loaded: LoadedModel, *, assignment: str | None = None, backend: str = "auto"
) -> Iterator[FocusModel]:
    """The same with the run's changes, until the block ends, however it ends."""
    focus = compose_run(service, run, loaded, assignment=assignment, backend=backend)
    try:
        with focus.with_changes(run_changes(run), run["num_tokens"]):
            yield focus
    finally:
        focus.detach()  # the model is shared


def run_changes(run: Mapping[str, Any], before: int | None = None) -> tuple[Change, ...]:
    """The changes made by hand that a run was executed with; `before` leaves out those of tokens from there on."""
    changes = read_changes(json.loads(run["changes"] or "[]"))
    return tuple(change for change in changes if before is None or last_token(change) < before)


def request_again(service: Service, run: dict[str, Any], texts: Sequence[str] = ()) -> AnalyzeRequest:
    """What analyses a stored run's text again as it was analysed, with further changes."""
    return request_of(
        run_config(run).to_dict(),
        _centroid_name(service, run),
        run["seed"],
        model=run["model_id"],
        device=device_here(run["device"]),
        dtype=run["dtype"],
        backend=backend_again(run),
        special_tokens=run_special_tokens(run),
        changes=(*map(str, run_changes(run)), *texts),
    )


def request_of(config: Mapping[str, Any], centroids: str, seed: int | None, **more: Any) -> AnalyzeRequest:
    """What analyses a text at the settings of an executed configuration."""
    executed = FocusConfig.from_json(json.dumps(config))
    random = {"num_groups": executed.num_groups, "routing_dim": executed.routing_dim, "seed": seed}
    drawn = random if centroids == "random" else {}
    return AnalyzeRequest.from_config(executed, centroids=centroids, **drawn, **more)


def run_random_seed(service: Service, run: dict[str, Any]) -> int | None:
    """Seed that a run's untrained centroids were drawn from; None for trained ones and for a file that is not here."""
    from focus_runtime.run.random_baseline import random_seed

    try:
        centroids = load_named_centroids(service.database, _centroid_name(service, run))
    except InputError:
        return None
    return int(run["seed"]) if centroids is None else random_seed(centroids)


def _centroid_name(service: Service, run: dict[str, Any]) -> str:
    digest = str(run["centroids_sha256"])
    if run["centroids_name"] == "random":
        return "random"
    if digest in {row["sha256"] for row in uploaded_centroids(service.database)}:
        return digest
    shipped = shipped_name(digest)
    if shipped is not None:
        return shipped
    name = str(run["centroids_name"])
    repository = hub_name(name)
    found = cached(repository) if repository is not None and repository.pinned else None
    if found is not None:  # in the hub's cache: nothing is fetched
        with (found / CENTROIDS_FILE).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() == digest:
                return name
    raise NotFoundError(f"the centroid file {name} of this run is not here", fix="upload it on the Centroids page")
