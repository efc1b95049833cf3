"""A text file to train on."""

from __future__ import annotations

import pytest

from tests.explorer.conftest import TEXT


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path
