"""Settings, measured on a tiny model and checked against plain definitions."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import Cancelled, ConfigError
from focus_explorer.usecases.centroids.ready import calibration_ids
from focus_explorer.usecases.compare.settings import (
    baseline_centroids,
    check_grid,
    grid_cells,
    grid_rows,
    measure_grid,
    suggested,
)
from focus_explorer.usecases.run_model import lease_run_model, run_centroids
from focus_explorer.usecases.runs import run_config, run_summary
from focus_explorer.usecases.service import Service
from focus_runtime.run.random_baseline import COMPARISON_SEED, baseline_seed, random_baseline, random_seed

pytestmark = pytest.mark.slow


def test_a_grid_measures_every_cell_and_keeps_it(two_runs):
    service, first, _ = two_runs
    rows = measure_grid(service, first, [1, 2], [8, 119], repeats=2)
    assert {(r["kind"], r["top_k"], r["window_size"]) for r in rows} == set(grid_cells([1, 2], [8, 119]))
    assert rows == grid_rows(Service(service.database.path), first)
    cells = {(r["kind"], r["top_k"], r["window_size"]): r for r in rows}
    summary, cell = run_summary(service.database, first), cells["focus", 1, 8]  # the run's own setting, measured again
    assert cell["perplexity_focus"] == pytest.approx(summary["perplexity"]["focus"], rel=1e-4)
    assert cell["perplexity_full"] == pytest.approx(summary["perplexity"]["full"], rel=1e-4)
    assert cell["retained_pairs"] == pytest.approx(summary["retained_pairs"])
    assert cell["dominance"] == pytest.approx(summary["dominance"])
    assert cell["delta_low"] <= cell["delta_mean"] <= cell["delta_high"]
    assert cell["delta_mean"] == pytest.approx(np.log(cell["perplexity_focus"] / cell["perplexity_full"]), abs=1e-9)
    assert cell["repeats"] == 2
    assert cell["scored"] == summary["num_tokens"] - 1
    whole = cells["focus", 1, 119]  # a window over the whole text is full attention
    assert whole["retained_pairs"] == 1
    assert whole["delta_mean"] == pytest.approx(0, abs=1e-5)
    alone, count, sinks = cells["window", 0, 8], 120, 4
    pairs = sum(1 for i in range(count) for j in range(i + 1) if i - j <= 8 or j < sinks)
    assert alone["retained_pairs"] == pytest.approx(pairs / (count * (count + 1) / 2))
    assert alone["dominance"] is None
    assert cells["random", 1, 8]["perplexity_focus"] != cell["perplexity_focus"]  # not the run's own random centroids


def test_random_centroids_are_balanced_under_the_setting_of_the_run(service, run_id):
    """And not under that of its file, which differs."""
    run = fetch_run(service.database, run_id)
    with lease_run_model(service, run) as loaded:
        own = run_centroids(service, run, loaded)
        of_file = dataclasses.replace(own, config=own.config.replace(top_k=3, window=1, num_sinks=0))
        random = baseline_centroids(run, loaded, of_file)["random"]
        same = random_baseline(
            loaded.model,
            run_config(run),
            seed=baseline_seed(random_seed(own), COMPARISON_SEED),
            layers=own.routers,
            calibrate_on=calibration_ids(loaded),
        )
    for layer, router in random.routers.items():
        np.testing.assert_array_equal(router.potential, same.routers[layer].potential)


@pytest.mark.long
def test_stopping_a_grid_keeps_what_was_measured_and_the_model_is_whole(two_runs, monkeypatch):
    service, _, second = two_runs
    stages = []

    def progress(stage, fraction):
        stages.append(stage)
        if len(stages) == 4:  # after loading, balancing and one cell
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        measure_grid(service, second, [1], [4, 8], repeats=1, progress=progress)
    assert len(grid_rows(service, second)) == 1
    with monkeypatch.context() as patch:
        patch.setattr("focus_explorer.usecases.compare.settings.stop_requested", lambda: True)
        with pytest.raises(Cancelled):
            measure_grid(service, second, [1], [8], repeats=1)
    assert len(grid_rows(service, second)) == 1
    assert len(measure_grid(service, second, [1], [4], repeats=1)) == 3


@pytest.mark.parametrize(
    ("top_k", "window", "repeats", "part"),
    [
        ([], [8], 1, "empty"),
        ([9], [8], 1, "top-k is 9"),
        ([1], [500], 1, "window is 500"),
        ([1], [8], 0, "repeats"),
        ([1, 2, 3, 4], list(range(20)), 1, "cells"),
    ],
)
def test_a_bad_grid_is_refused(two_runs, top_k, window, repeats, part):
    service, first, _ = two_runs
    with pytest.raises(ConfigError, match=part):
        measure_grid(service, first, top_k, window, repeats=repeats)


def test_suggested_values_suit_the_text():
    for tokens, groups, top_k, window in itertools.product((30, 300, 2000, 90_000), (2, 8), (1, 2), (4, 20)):
        suggestions = suggested(groups, tokens, top_k, window)
        assert top_k in suggestions["top_k"]
        assert window in suggestions["window"]
        assert all(1 <= k <= groups for k in suggestions["top_k"])
        assert all(0 < w < tokens for w in suggestions["window"])
        assert len(suggestions["top_k"]) * len(suggestions["window"]) <= 12


def test_a_runs_own_window_may_be_longer_than_its_text(service, run_id):
    run = fetch_run(service.database, run_id)
    config = json.loads(run["config"]) | {"window": run["num_tokens"] + 50}
    short = run | {"config": json.dumps(config)}
    grid = suggested(config["num_groups"], run["num_tokens"], config["top_k"], config["window"])
    check_grid(short, grid["top_k"], grid["window"], 1)
    with pytest.raises(ConfigError, match="the window is"):
        check_grid(short, [1], [run["num_tokens"] + 49], 1)
