"""Maps of a run's tokens: one layer by routing vectors, all layers by group probabilities; stored with their seed.

Every layer has routing vectors of its own kind, so those of two layers cannot be placed together. The map of all layers
has one point per token instead: the square roots of its group probabilities in every layer, one after the other. The
cosine of two such points is the Bhattacharyya coefficient of their probabilities, averaged over the layers.
"""

from __future__ import annotations

import json
import sys
import threading
import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import NotFoundError
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.runs import MapParametersPayload, MapPayload, NeighboursPayload
from focus_explorer.views.run import projection_payload
from focus_runtime.store.database import Database
from focus_runtime.store.measurements import write_projection

NEIGHBOURS, MIN_DIST, METRIC = 15, 0.1, "cosine"
SHORTEST_FOR_UMAP = 32
LONGEST_FOR_ALL_PAIRS = 4096  # as in umap-learn: beyond, it finds neighbours approximately
TRUST_SAMPLE = 2000

_IMPORTING = threading.Lock()
ALL_LAYERS = -1
NEAREST = 10  # neighbours of a token that are named
MOST_TOKENS = 4000  # UMAP of more takes minutes on two cores


@dataclass(frozen=True, slots=True)
class Projection:
    """Coordinates (T + K, 2), tokens first and then centroids, and how they were made."""

    xy: NDArray[np.float64]
    method: str
    parameters: dict[str, Any]
    seed: int
    trustworthiness: float | None


def project(
    routing: NDArray[np.float32], centroids: NDArray[np.float32], *, seed: int = 0, quick: bool = False
) -> Projection:
    """Lay out (T, G) tokens and (K, G) centroids together by the angle between their vectors; K may be 0.

    Scores are dot products with the centroids, so direction decides the group and the metric is cosine.
    """
    points = np.concatenate([routing, centroids]).astype(np.float64)
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    parameters: dict[str, Any] = {"metric": METRIC}
    if quick or len(routing) < SHORTEST_FOR_UMAP:
        xy, method = _pca(points), "PCA"
    else:
        xy, method = _umap(points, seed), "UMAP"
        parameters |= {"n_neighbors": NEIGHBOURS, "min_dist": MIN_DIST}
    return Projection(xy, method, parameters, seed, _trust(points[: len(routing)], xy[: len(routing)], seed))


def _umap(points: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    from threadpoolctl import threadpool_limits

    umap = _import_umap()
    _keep_compiled()
    model = umap.UMAP(
        n_neighbors=NEIGHBOURS,
        min_dist=MIN_DIST,
        metric=METRIC,
        random_state=seed,
        n_jobs=1,
        precomputed_knn=_neighbours(points) if len(points) < LONGEST_FOR_ALL_PAIRS else (None, None, None),
    )
    # numba sets the number of threads of a library that it shares with torch: put back at the end
    with warnings.catch_warnings(), threadpool_limits(limits=None):
        warnings.simplefilter("ignore")
        return np.asarray(model.fit_transform(points), dtype=np.float64)


@cache
def _import_umap() -> Any:
    """The module, without compiling what it imports for neighbours of long texts: 11 s once, a third of a second later.

    Those functions name their types, for which numba compiles them at once; without, it does when they are called.
    """
    import numba

    compiled_at_once = numba.njit

    def when_called(*args: Any, **options: Any) -> Any:
        by_neighbours = sys._getframe(1).f_globals["__name__"].startswith("pynndescent")
        types_named = bool(args) and not callable(args[0])
        return compiled_at_once(*(args[1:] if by_neighbours and types_named else args), **options)

    with _IMPORTING:
        numba.njit = when_called
        try:
            import umap
        finally:
            numba.njit = compiled_at_once
    return umap


def _keep_compiled() -> None:
    """Have numba keep on disk what it compiles of UMAP, 4 s in every process; UMAP asks that of few functions."""
    from numba.core.caching import NullCache
    from numba.core.dispatcher import Dispatcher
    from umap import layouts, umap_, utils

    for module in (umap_, layouts, utils):
        for value in vars(module).values():
            if isinstance(value, Dispatcher) and isinstance(getattr(value, "_cache", None), NullCache):
                with suppress(RuntimeError):  # no folder that can be written: compiled each time, as before
                    value.enable_caching()


def _neighbours(points: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Nearest points of each, itself among them, and their distances; UMAP would compile a search of its own first."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=NEIGHBOURS, metric=METRIC, algorithm="brute").fit(points)
    distances, indices = search.kneighbors(points)
    return indices, distances


def _pca(points: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    xy = centred @ axes[:2].T
    return np.pad(xy, ((0, 0), (0, 2 - xy.shape[1])))


def _trust(points: NDArray[np.float64], xy: NDArray[np.float64], seed: int) -> float | None:
    """Share of neighbourhoods kept (Venna and Kaski), on at most 2,000 tokens; None when there are too few."""
    from sklearn.manifold import trustworthiness

    neighbours = 10
    if len(points) < 3 * neighbours:
        return None
    picked = np.arange(len(points))
    if len(points) > TRUST_SAMPLE:
        picked = np.sort(np.random.default_rng(seed).choice(len(points), TRUST_SAMPLE, replace=False))
    return float(trustworthiness(points[picked], xy[picked], n_neighbors=neighbours, metric=METRIC))


def evenly_spaced(count: int, most: int) -> NDArray[np.int64]:
    """Positions of at most `most` of `count` tokens, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def map_payload(service: Service, run_id: str, layer: int | None, *, quick: bool = False) -> MapPayload:
    """The map of a layer, or of all layers (None); computed and stored when it is requested for the first time."""
    database = service.database
    with nullcontext() if quick else service.map_lock:
        rows = _read(database, run_id, layer)
        if not rows.num_rows:
            made, positions = _make(database, run_id, layer, quick=quick)
            if quick:
                return _preliminary(made, positions)
            meta = {
                "method": made.method,
                "parameters": made.parameters,
                "seed": made.seed,
                "trustworthiness": made.trustworthiness,
                "num_centroids": len(made.xy) - len(positions),
            }
            write_projection(database, run_id, _number(layer), made.xy, meta, positions)
            rows = _read(database, run_id, layer)
        return projection_payload(rows)


def map_neighbours(service: Service, run_id: str, layer: int | None, token: int) -> NeighboursPayload:
    """The tokens of a map whose vectors are most like one token's: exact in the full space, whatever the map shows."""
    database = service.database
    count = fetch_run(database, run_id)["num_tokens"]
    if not 0 <= token < count:
        raise NotFoundError(f"run {run_id!r} has no token {token}", expected=f"0 to {count - 1:,}")
    positions = np.union1d(evenly_spaced(count, MOST_TOKENS), [token])
    vectors, _ = _space(database, run_id, layer, positions)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    own = int(np.searchsorted(positions, token))
    similarity = vectors @ vectors[own]
    similarity[own] = -np.inf
    nearest = np.argsort(-similarity, kind="stable")[: min(NEAREST, len(positions) - 1)]
    return {
        "token": token,
        "positions": positions[nearest].tolist(),
        "similarity": np.round(similarity[nearest].astype(np.float64), 4).tolist(),
        "of": len(positions) - 1,
    }


def has_map(database: Database, run_id: str, layer: int | None) -> bool:
    """Whether the map of a layer, or of all layers (None), is stored."""
    return bool(_read(database, run_id, layer).num_rows)


def _preliminary(made: Projection, positions: NDArray[np.int64]) -> MapPayload:
    tokens, centroids = np.split(np.round(made.xy, 4), [len(positions)])
    return {
        "method": made.method,
        "parameters": cast(MapParametersPayload, made.parameters),
        "seed": made.seed,
        "trustworthiness": made.trustworthiness,
        "positions": positions.tolist(),
        "x": tokens[:, 0].tolist(),
        "y": tokens[:, 1].tolist(),
        "centroid_x": centroids[:, 0].tolist(),
        "centroid_y": centroids[:, 1].tolist(),
        "preliminary": True,
    }


def _number(layer: int | None) -> int:
    return ALL_LAYERS if layer is None else layer


def _read(database: Database, run_id: str, layer: int | None) -> Any:
    return fetch(database, "projection", run_id=run_id, layer=_number(layer))


def _make(database: Database, run_id: str, layer: int | None, *, quick: bool) -> tuple[Projection, NDArray[np.int64]]:
    """A projection of the tokens of a layer or of all, and which tokens these are."""
    run = fetch_run(database, run_id)
    count, groups = run["num_tokens"], json.loads(run["config"])["num_groups"]
    positions = evenly_spaced(count, MOST_TOKENS)
    vectors, centroids = _space(database, run_id, layer, positions)
    layers = {"space": "probabilities", "layers": vectors.shape[1] // groups}
    space = layers if layer is None else {"space": "routing"}
    made = project(vectors, centroids, quick=quick)
    made.parameters.update(space, tokens=len(positions), of=count)
    return made, positions


def _space(
    database: Database, run_id: str, layer: int | None, positions: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Vectors of tokens (N, D) and of centroids in the space of a layer or of all layers, which has no centroids."""
    if layer is None:
        vectors = np.sqrt(_vectors(database, "all_probabilities", "probabilities", run_id, positions))
        return vectors, np.empty((0, vectors.shape[1]), dtype=np.float32)
    stored = fetch(database, "layer_centroids", run_id=run_id, layer=layer)
    if not stored.num_rows:
        raise NotFoundError(f"run {run_id!r} has no layer {layer}", fix="choose a layer of this run")
    centroids = np.array(stored["centroids"][0].as_py(), dtype=np.float32)
    return _vectors(database, "routing", "routing", run_id, positions, layer=layer), centroids


def _vectors(
    database: Database, query: str, column: str, run_id: str, positions: NDArray[np.int64], **more: Any
) -> NDArray[np.float32]:
    """(N, D) from rows of lists, all lists of one token one after the other."""
    rows = fetch(database, query, run_id=run_id, positions=positions.tolist(), **more)
    flat = rows[column].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float32).reshape(len(positions), -1)
