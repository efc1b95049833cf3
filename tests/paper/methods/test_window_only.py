"""Window and sinks only against that mask, pair by pair."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.errors import ConfigError
from paper.methods import WindowOnly
from paper.methods.window_only import window_attention
from tests.paper.methods.naive import naive_attention, random_heads


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("paper.methods.pairs.BLOCK", 7)


@pytest.mark.parametrize("sinks", [0, 3, 40])
def test_window_only_reads_the_window_and_the_sinks(fresh_seed, sinks):
    query, key, value = random_heads(23)
    out = window_attention(query, key, value, window=4, num_sinks=sinks)
    expected, _ = naive_attention(query, key, value, lambda b, h, i, j: 0.0 if i - j <= 4 or j < sinks else None)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: WindowOnly(window=True), "window"),
        (lambda: WindowOnly(num_sinks=-2), "num_sinks"),
    ],
)
def test_bad_settings_are_named(make, name):
    with pytest.raises(ConfigError, match=name):
        make()
