"""Growing lengths, measured on a tiny model."""

from __future__ import annotations

import pytest
import torch

from focus_explorer.data.parts import executed
from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import NotFoundError
from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.compare import lengths as lengths_module
from focus_explorer.usecases.compare.lengths import crossing, lengths, measure_lengths
from focus_explorer.usecases.run_payload import load_run
from focus_runtime.composition.changes import read_changes
from focus_runtime.composition.heads import FULL
from focus_runtime.mask.counts import count_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.speed.layer import tokens_like
from tests.explorer.conftest import BUDGET, TEXT


def point(tokens, full, focus, routing=1.0):
    values = {"full": full, "focus": focus}
    spread = {f"{m}_{end}": v for m, v in values.items() for end in ("median", "low", "high")}
    return {"tokens": tokens, "routing_median": routing, **spread}


def test_crossing_lies_where_the_times_are_equal():
    # full = n^2 / 4096 and Focus with routing = n / 2 meet at 2,048; measured on both sides of it
    points = [point(n, n * n / 4096, n / 2 - 1) for n in (512, 1024, 4096, 8192)]
    crossover = crossing(points[::-1])
    assert (crossover["kind"], crossover["below"], crossover["above"]) == ("interpolated", 1024, 4096)
    assert crossover["tokens"] == pytest.approx(2048)


def test_crossing_claims_nothing_beyond_what_was_measured():
    assert crossing([]) is None
    assert crossing([point(256, 1, 5), point(512, 4, 6)])["kind"] == "never"
    assert crossing([point(256, 10, 5), point(512, 40, 6)])["kind"] == "from the start"
    assert crossing([point(256, 10, 5), point(512, 4, 6)])["kind"] == "mixed"
    dip = [point(256, 10, 5), point(512, 5, 6), point(1024, 30, 6)]  # faster, slower, faster: only the last counts
    assert crossing(dip)["below"] == 512
    assert not crossing([point(256, 5, 4.5) | {"full_low": 4, "full_high": 6, "focus_high": 6}])["clear"]


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def once(monkeypatch):
    monkeypatch.setattr(lengths_module, "REPEATS", 1)


def test_lengths_are_measured_and_kept(two_runs):
    service, first, _ = two_runs
    number = load_run(service.database, first)["layer_ids"][0]
    measured = measure_lengths(service, first, number, seconds=1)["layers"][str(number)]
    assert measured["points"][0]["tokens"] == 256
    assert [p["tokens"] for p in measured["points"]] == [256 * 2**i for i in range(len(measured["points"]))]
    assert lengths(service, first)["layers"][str(number)] == measured
    rows = executed(service.database, fetch_run(service.database, first), number)[number][0].membership
    made = rows[tokens_like(torch.from_numpy(rows[None].copy()), 256, torch.Generator().manual_seed(256)).numpy()]
    assert measured["points"][0]["retained_pairs"] == pytest.approx(count_pairs(made, PairRule(8, 4)).retained_pairs)
    with pytest.raises(NotFoundError, match="no layer 99"):
        measure_lengths(service, first, 99)


@pytest.fixture(scope="module")
def budget_run(service, heads_model):
    how = {"num_groups": 6, "top_k": 1, "window": 8, "num_sinks": 2, "window_growth": (15, 45), "repeats": 1}
    return analyze(service, TEXT, AnalyzeRequest(model=heads_model, centroids="random", budget=BUDGET, **how))


def test_changes_of_heads_are_timed_with_them(service, budget_run, monkeypatch):
    monkeypatch.setattr(lengths_module, "run_changes", lambda run: read_changes(["full:3"]))
    row = measure_lengths(service, budget_run, 3, seconds=1)["layers"]["3"]["points"][0]
    assert (row["backend"], row["retained_pairs"]) == (FULL, 1.0)


def test_a_layer_that_the_budget_puts_at_full_attention_is_timed_as_such(service, budget_run):
    """Where every head attends fully the model calls its own kernel, and its router all the same."""
    measured = measure_lengths(service, budget_run, 0, seconds=1)["layers"]["0"]["points"]
    assert {(point["backend"], point["retained_pairs"]) for point in measured} == {(FULL, 1.0)}
    assert all(point["routing_median"] > 0 for point in measured)
    apart = measure_lengths(service, budget_run, 1, seconds=1)["layers"]["1"]["points"]
    assert FULL in apart[0]["backend"].split(", ")
    assert apart[0]["retained_pairs"] < 1
