"""Twins: trained once where recipes share one, kept, and deciding nothing where nothing was learnt."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from focus_runtime.fit.regimes import run_regime
from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.perplexity import Scores
from paper.reports.kept import read_kept, write_kept
from paper.reports.twins import from_scratch_plan, twin_claims, twins, word_frequencies


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


@pytest.mark.slow
def test_full_attention_is_trained_once_for_all_recipes(lab, monkeypatch):
    trained = []

    def counted(*arguments, twin=False, **more):
        trained.append("full attention" if twin else "Focus")
        return run_regime(*arguments, twin=twin, **more)

    monkeypatch.setattr("paper.reports.twins.run_regime", counted)
    both = [twins(lab.under(name), from_scratch_plan(lab, 3), seed=11) for name in ("paper", "ours")]
    assert trained == ["full attention", "Focus", "Focus"]
    assert both[0].rows[0] == both[1].rows[0]
    assert both[0].curves["full"] == both[1].curves["full"]
    assert both[0].rows[1]["ppl"] != both[1].rows[1]["ppl"]
    again = twins(lab.under("paper"), from_scratch_plan(lab, 3), seed=11)
    assert len(trained) == 3, "both are found on disk"
    assert again.rows[1] == both[0].rows[1]
    assert again.curves == both[0].curves


def test_scores_are_kept_to_the_last_bit(tmp_path):
    scores = Scores(np.array([math.pi, 1 / 3]), np.array([7, 9]), *(np.random.default_rng().random((3, 4))))
    write_kept(tmp_path / "row.json", {"scores": scores, "gap": Interval(0.1, None, 0.3, 2)})
    kept = read_kept(tmp_path / "row.json")
    for field in dataclasses.fields(scores):
        np.testing.assert_array_equal(getattr(kept["scores"], field.name), getattr(scores, field.name))
    assert kept["gap"] == Interval(0.1, None, 0.3, 2)
