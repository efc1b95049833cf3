"""Two-dimensional maps of tokens -> rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_runtime.store.arrow import constant, insert
from focus_runtime.store.database import Database


def write_projection(
    database: Database,
    run_id: str,
    layer: int,
    xy: NDArray[np.float64],
    meta: dict[str, Any],
    positions: NDArray[np.int64] | None = None,
) -> str:
    """Store a layer's 2-d coordinates; the K centroids have positions -1 ... -K after the tokens.

    Args:
        database: the store.
        run_id: which run.
        layer: layer number, -1 for a map of all layers.
        xy: (T + K, 2), tokens first, then centroids.
        meta: method, parameters, seed, trustworthiness, num_centroids.
        positions: (T,) which tokens these are; the first T of the text when None.
    """
    projection_id = f"{run_id}/{layer}/{meta['method']}-{meta['seed']}"
    tokens = np.arange(xy.shape[0] - meta["num_centroids"]) if positions is None else positions
    position = np.concatenate([tokens, -1 - np.arange(meta["num_centroids"])])
    rows = pa.table(
        {
            "projection_id": pa.array([projection_id] * len(xy)),
            "layer": constant(layer, len(xy), pa.int32()),
            "position": position,
            "x": xy[:, 0].astype(np.float64),
            "y": xy[:, 1].astype(np.float64),
        }
    )
    with database.write() as connection:
        connection.execute("DELETE FROM projections WHERE projection_id = ?", [projection_id])
        connection.execute("DELETE FROM projection_meta WHERE projection_id = ?", [projection_id])
        insert(connection, "projections", rows)
        connection.execute(
            "INSERT INTO projection_meta VALUES (?, ?, ?, ?, ?, ?, ?, now())",
            [
                projection_id,
                run_id,
                layer,
                meta["method"],
                json.dumps(meta["parameters"], sort_keys=True),
                meta["seed"],
                meta["trustworthiness"],
            ],
        )
    return projection_id
