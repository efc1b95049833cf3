"""Arrays made from buffers equal those that Arrow makes from Python values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from focus_explorer.exports.tables.arrays import repeated, text_array


@pytest.mark.parametrize("texts", [[], [""], ["a", "", "é日本🙂", "b\x00c"]])
def test_texts_are_kept(texts):
    made = text_array(texts)
    made.validate(full=True)
    assert made.equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("value", ["", "é🙂", 0, -3, 1 << 40])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_one_value_is_repeated(value, length):
    made = repeated(value, length)
    made.validate(full=True)
    assert made.equals(pa.array([value] * length, pa.int64() if isinstance(value, int) else pa.string()))
