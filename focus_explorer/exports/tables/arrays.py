"""Arrow arrays of text and of one repeated value, made from buffers.

`pyarrow.array` and `pyarrow.scalar` import pandas, which takes longer than writing most tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def text_array(values: Sequence[str]) -> pa.Array:
    """Texts as an array of strings without nulls."""
    encoded = [value.encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def repeated(value: str | int, length: int) -> pa.Array:
    """An array of strings or of 64-bit integers that holds one value `length` times."""
    if isinstance(value, int):
        numbers = np.full(length, value, dtype=np.int64)
        return pa.Array.from_buffers(pa.int64(), length, [None, pa.py_buffer(numbers)])
    encoded = value.encode()
    offsets = np.arange(length + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.StringArray.from_buffers(length, pa.py_buffer(offsets), pa.py_buffer(encoded * length))
