"""Sample texts and text files."""

from __future__ import annotations

import pytest

from focus_explorer.errors import TextError
from focus_explorer.usecases.texts import SAMPLES, read_text_file, sample_of, sample_text


def test_every_sample_is_a_text_of_some_length():
    for name in SAMPLES:
        assert len(sample_text(name)) > 1000
        assert 300 <= len(sample_text(name).split()) <= 1500


def test_text_file_problems_are_named(tmp_path, monkeypatch):
    with pytest.raises(TextError, match="cannot read"):
        read_text_file(tmp_path / "missing.txt")
    big = tmp_path / "big.txt"
    with big.open("wb") as stream:
        stream.truncate(50 * 2**20)
    with pytest.raises(TextError, match="50 MB"):
        read_text_file(big)


def test_a_sample_and_its_beginning_are_known():
    assert sample_of(sample_text("French")) == "French"
    assert sample_of(sample_text("French")[:200]) == "French"
    assert sample_of("A text of one's own.") is None
