"""Scores on held-out text at the end of a training."""

from __future__ import annotations

import json

import pytest

from focus_explorer.usecases.training.held_out import describe_scores, score
from tests.helpers import build_centroids, random_ids


def test_domains_without_distant_pairs_are_left_out_of_those_that_are_kept(tiny_model):
    sequences = {"short": random_ids(20, batch=2), "long": random_ids(60, batch=2)}
    report = score(tiny_model, build_centroids(tiny_model, window=20), sequences)
    own = report["domains"]
    assert own["short"]["k=1"]["distant_kept"] is None
    assert 0 < own["long"]["k=1"]["distant_kept"] < 1
    assert report["k=1"]["distant_kept"] == own["long"]["k=1"]["distant_kept"]
    kept = [own[name]["k=1"]["retained_pairs"] for name in own]
    assert report["k=1"]["retained_pairs"] == pytest.approx(sum(kept) / 2)
    json.dumps(report, allow_nan=False)
    assert f"distant pairs kept {report['k=1']['distant_kept']:.1%}" in describe_scores(report)[1]
    del sequences["long"]
    lines = describe_scores(score(tiny_model, build_centroids(tiny_model, window=20), sequences))
    assert lines[1].endswith("pairs kept 100.0%, distant pairs kept none")


def test_with_a_budget_the_scores_are_not_said_to_be_of_one_k_in_all_heads(tiny_model):
    report = score(tiny_model, build_centroids(tiny_model), {"held-out": random_ids(20, batch=2)})
    said = "  k is that of heads without a setting of their own; the others keep theirs"
    assert said not in describe_scores(report)
    assert describe_scores(report, has_budget=True) == [*describe_scores(report), said]
    assert describe_scores({}, has_budget=True) == []
