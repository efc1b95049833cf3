"""Texts of a training, and the held-out ones left out of them."""

from __future__ import annotations

import pytest

from focus_explorer.usecases.training.texts import gather_texts
from focus_runtime.errors import TextError

pytestmark = pytest.mark.slow  # with the other tests of training


def test_a_held_out_text_is_left_out_wherever_it_lies(tmp_path):
    """A copy of it under another name would otherwise be trained on."""
    folder, held = tmp_path / "texts", tmp_path / "held-out.txt"
    folder.mkdir()
    for name, text in (("a.txt", "one text"), ("b.txt", "another"), ("copy.txt", "the held-out one")):
        (folder / name).write_text(text)
    held.write_text("the held-out one")
    texts, files = gather_texts([str(folder)], [str(held)])
    assert texts == ["one text", "another"]
    assert [path.name for path in files] == ["a.txt", "b.txt"]
    assert gather_texts([str(folder / "a.txt")], [str(tmp_path / "texts" / "b.txt")])[0] == ["one text"]
    with pytest.raises(TextError, match="no text to train on besides the held-out one"):
        gather_texts([str(folder)], [str(folder)])
