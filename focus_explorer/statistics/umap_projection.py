"""The 2-d map of a layer: vectors of tokens by UMAP, seeded, with its trustworthiness; PCA for a short text."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEIGHBOURS, MIN_DIST, METRIC = 15, 0.1, "cosine"
SHORTEST_FOR_UMAP = 32
LONGEST_FOR_ALL_PAIRS = 4096  # as in umap-learn: beyond, it finds neighbours approximately
TRUST_SAMPLE = 2000


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
    """Lay out tokens and centroids together by the angle between their vectors.

    Scores are dot products with the centroids, so direction decides the group and the metric is cosine.

    Args:
        routing: (T, G); centroids: (K, G), K may be 0.
        seed: of UMAP and of the tokens that trustworthiness is measured on.
        quick: PCA whatever the length, which takes a fraction of a second.
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


_IMPORTING = threading.Lock()


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
                with contextlib.suppress(RuntimeError):  # no folder that can be written: compiled each time, as before
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
