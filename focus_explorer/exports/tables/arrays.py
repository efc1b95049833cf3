"""Arrow arrays of text, and columns of one repeated value, made from buffers.

`pyarrow.array` and `pyarrow.scalar` import pandas, which takes longer than writing most tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

CHUNK_BYTES = 1 << 24


def text_array(values: Sequence[str]) -> pa.Array:
    """Texts as an array of strings without nulls."""
    encoded = [value.encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def repeated(value: str | bool | int | float, length: int) -> pa.ChunkedArray:
    """A column of strings, truth values, 64-bit integers or floats that holds one value `length` times.

    Its chunks are one array of at most about `CHUNK_BYTES`, so that a long text repeated often needs little memory.
    """
    rows = min(length, max(1, CHUNK_BYTES // max(1, len(value)))) if isinstance(value, str) else length
    chunk = _repeated(value, rows)
    whole, rest = divmod(length, max(1, rows))
    return pa.chunked_array([chunk] * whole + ([chunk.slice(0, rest)] if rest or not whole else []))


def _repeated(value: str | bool | int | float, length: int) -> pa.Array:
    if isinstance(value, bool):
        bits = np.full(length // 8 + 1, 255 if value else 0, dtype=np.uint8)
        return pa.Array.from_buffers(pa.bool_(), length, [None, pa.py_buffer(bits)])
    if isinstance(value, int | float):
        numbers = np.full(length, value, dtype=np.int64 if isinstance(value, int) else np.float64)
        return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), length, [None, pa.py_buffer(numbers)])
    encoded = value.encode()
    offsets = np.arange(length + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.StringArray.from_buffers(length, pa.py_buffer(offsets), pa.py_buffer(encoded * length))
