"""Rows by layer and position as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def placed(rows: pa.Table, layers: NDArray[np.integer], count: int, name: str) -> NDArray[Any]:
    """(L, T) values of one column, by layer and position.

    Args:
        rows: one for every layer and position, in any order, with columns `layer` and `position`.
        layers: (L,) layer numbers, ascending.
        count: T.
        name: of the column.
    """
    values = rows[name].to_numpy()
    assert values.size == layers.size * count, "a visible run is whole"
    array = np.empty((layers.size, count), dtype=values.dtype)
    array[np.searchsorted(layers, rows["layer"].to_numpy()), rows["position"].to_numpy()] = values
    return array
