"""A twin that has learnt nothing decides nothing."""

from __future__ import annotations

import math

import pytest
import torch

from focus_explorer.reproduce.weights import twin_claims, word_frequencies
from focus_runtime.measure.intervals import Interval


def test_a_model_no_better_than_token_frequencies_decides_nothing():
    counts = torch.tensor([0, 0, 0, 1])
    sequences = torch.tensor([[1, 0, 1], [0, 1, 1]])
    expected = math.exp(-(math.log(4 / 6) + 3 * math.log(2 / 6)) / 4)  # vocabulary of two, one added to each count
    assert word_frequencies(counts, sequences, 2) == pytest.approx(expected)

    def rows(twin):
        better = Interval(-0.01, -0.02, -0.005, 12)
        return [
            {"method": "m", "attention": "full attention", "ppl": twin},
            {"method": "m", "attention": "Focus, k = 2", "ppl": Interval(twin, None, None, 12), "relative": better},
        ]

    assert twin_claims(rows(50.0), 900.0)[0].held is True
    assert twin_claims(rows(890.0), 900.0)[0].held is None
