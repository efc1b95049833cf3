"""Arrays made from buffers equal those that Arrow makes from Python values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from focus_explorer.exports.tables import sources
from focus_explorer.exports.tables.sources import repeated, text_array


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "é日本🙂", "b\x00c"]])
def test_texts_are_kept(texts):
    made = text_array(texts)
    made.validate(full=True)
    assert made.equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("value", ["", "é🙂", 0, -3, 1 << 40, 0.25, True, False])
@pytest.mark.parametrize("length", [0, 1, 5, 1000])
def test_one_value_is_repeated(value, length, monkeypatch):
    monkeypatch.setattr(sources, "CHUNK_BYTES", 20)
    made = repeated(value, length)
    made.validate(full=True)
    kind = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}[type(value)]
    assert made.equals(pa.chunked_array([pa.array([value] * length, kind)]))


def test_a_long_text_in_many_rows_needs_little_memory():
    """Their bytes together are more than the offsets of one array of strings can count."""
    made = repeated("x" * 12_000, 600_000)
    assert max(chunk.nbytes for chunk in made.chunks) < 2 * sources.CHUNK_BYTES
    assert (len(made), made[-1].as_py()) == (600_000, "x" * 12_000)
