"""Sweeps of mask and assignment settings, each with both baselines."""

from __future__ import annotations

import json

import pytest

from paper.studies.inference_settings import sweep_assignment, sweep_masks
from tests.helpers import random_ids

pytestmark = [
    pytest.mark.slow,  # many short trainings or compositions; they run in make test
    pytest.mark.usefixtures("centroids_unchanged"),
]


def test_a_sweep_has_both_baselines_at_every_setting(model, centroids, sequences):
    rows = sweep_masks(
        model, centroids, sequences, random_ids(40, batch=2, seed=8), top_ks=(1, 3), windows=(2, 4), sinks=(0, 1)
    )
    names = [row["setting"]["centroids"] for row in rows]
    assert names == ["full attention", *["none", *["random", "given"] * 2] * 3]
    places = [(row["setting"]["window"], row["setting"]["num_sinks"]) for row in rows[1:]]
    assert list(dict.fromkeys(places)) == [(2, 1), (4, 1), (4, 0)]
    full = rows[0]["perplexity"]
    for none, random, given in zip(rows[1::5], rows[2::5], rows[3::5], strict=True):
        expected = (none["perplexity"] - given["perplexity"]) / (none["perplexity"] - full)
        assert given["gap_recovered"] == (pytest.approx(expected) if none["perplexity"] > full else None)
        assert given["distant_kept"] > none["distant_kept"] == 0.0
        assert random["perplexity"] != given["perplexity"]
    for row in rows[5::5]:
        assert row["setting"]["top_k"] == 3
        assert row["difference_nats"] == pytest.approx(0.0, abs=1e-6)
    json.dumps(rows)


def test_temperature_and_iterations_are_swept_with_sinkhorn(model, centroids, sequences):
    rows = sweep_assignment(
        model,
        centroids,
        sequences,
        random_ids(40, batch=2, seed=8),
        top_ks=(1,),
        temperatures=(0.1, 2.0),
        iterations=(1, 20),
    )
    given = [row for row in rows if row["setting"]["centroids"] == "given"]
    settings = [(row["setting"]["temperature"], row["setting"]["sinkhorn_iterations"]) for row in given]
    assert settings == [(0.1, 20), (2.0, 20), (0.1, 1)]
    assert {row["setting"]["assignment"] for row in given} == {"sinkhorn"}
    assert [row["setting"]["centroids"] for row in rows].count("none") == 1
    assert len({row["perplexity"] for row in given}) == 3
