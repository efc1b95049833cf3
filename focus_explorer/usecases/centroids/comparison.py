"""Two centroid files compared layer by layer, their groups matched by the Hungarian method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_explorer.views.payloads.centroids import LayerMatch

Floats = NDArray[np.float64]
RANDOM_SEED = 0


@dataclass(frozen=True, slots=True)
class LayerCentroids:
    """Centroids of one layer.

    Attributes:
        centroids: (K, d_g) in routing space.
        directions: (K, d) hidden states that score highest with each centroid: projection times centroid.
    """

    centroids: Floats
    directions: Floats


def cosines(a: Floats, b: Floats) -> Floats:
    """(Ka, Kb) cosines of the rows of (Ka, d) and (Kb, d); a zero vector has cosine 0 to all."""
    unit_a, unit_b = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (a, b))
    products: Floats = unit_a @ unit_b.T
    return products


def _match(a: Floats, b: Floats) -> list[tuple[int, int, float]]:
    from scipy.optimize import linear_sum_assignment

    distance = 1.0 - cosines(a, b)
    rows, columns = linear_sum_assignment(distance)
    return [(int(i), int(j), float(distance[i, j])) for i, j in zip(rows, columns, strict=True)]


def match_layers(a: LayerCentroids, b: LayerCentroids, rng: np.random.Generator) -> LayerMatch:
    """Match the groups of one layer of two files by the distance of their directions.

    Args:
        a: layer of the first file.
        b: layer of the second file.
        rng: draws the untrained centroids of the `null` distance.

    Returns:
        pairs: [group, group, distance], distance 1 - cosine; mean, worst: of the distances; null: mean distance to
        untrained random centroids matched the same way; unmatched: groups of each file without a partner.
    """
    pairs = _match(a.directions, b.directions)
    groups, width = b.directions.shape
    rank = b.centroids.shape[1]
    random = rng.standard_normal((groups, rank)) @ rng.standard_normal((rank, width))
    null = [distance for _, _, distance in _match(a.directions, random)]
    distances = [distance for _, _, distance in pairs]
    taken_a, taken_b = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    return {
        "pairs": [(i, j, round(distance, 4)) for i, j, distance in pairs],
        "mean": round(float(np.mean(distances)), 4),
        "worst": round(max(distances), 4),
        "null": round(float(np.mean(null)), 4),
        "unmatched": (
            [i for i in range(len(a.directions)) if i not in taken_a],
            [j for j in range(groups) if j not in taken_b],
        ),
    }
