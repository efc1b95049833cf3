"""Centroids are trained once, and accuracy is measured where the text allows."""

from __future__ import annotations

import dataclasses

import pytest

from focus_explorer.reproduce.lab import Lab
from tests.explorer.reproduce.conftest import UNIT


def test_trained_centroids_are_found_again(lab, monkeypatch):
    first = lab.trained(0, num_groups=4)
    monkeypatch.setattr("focus_explorer.reproduce.lab.train_centroids", lambda *a, **k: pytest.fail("trained again"))
    assert lab.trained(0, num_groups=4).sha256 == lab.trained(0, num_groups=4).sha256 != ""
    assert first.config == lab.trained(0, num_groups=4).config
    assert lab.key("a", 1) != lab.key("a", 2)


@pytest.mark.slow
def test_accuracy_is_measured_where_the_text_allows(folder, tmp_path):
    pytest.importorskip("lm_eval")
    names = ("Anne", "Emma", "Jane", "Lucy")
    text = " ".join(
        f"{a}, as it was, saw {a}. And after some long while there came {b} with a great many letters and thanked {a}."
        for _ in range(30)
        for a in names
        for b in names
        if a != b
    )
    scale = dataclasses.replace(UNIT, seq_len=160, window=64)
    lab = Lab(scale, str(folder), [text], [text], {"train": ["a"], "val": ["b"]}, tmp_path)
    accuracy = lab.accuracy(lab.model)
    assert accuracy["beyond"] == 1.0
    assert 0 <= accuracy["short"].low <= accuracy["short"].value <= 1
    assert accuracy["long"].high <= 1
    assert accuracy["tests"]["long"]["difference"]["value"] == 0.0
