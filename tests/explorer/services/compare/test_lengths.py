"""Growing lengths, measured on a tiny model."""

from __future__ import annotations

import pytest
import torch

from focus_explorer.data.parts import executed
from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import NotFoundError
from focus_explorer.services.compare.lengths import lengths, measure_lengths
from focus_explorer.services.run_payload import load_run
from focus_runtime.composition.state import FULL
from focus_runtime.mask.blocks import count_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure.speed import membership_like

pytestmark = pytest.mark.slow


def test_lengths_are_measured_and_kept(two_runs):
    service, first, _ = two_runs
    layer = load_run(service.database, first)["layer_ids"][0]
    measured = measure_lengths(service, first, layer, seconds=1, repeats=1)["layers"][str(layer)]
    assert measured["points"][0]["tokens"] == 256
    assert [p["tokens"] for p in measured["points"]] == [256 * 2**i for i in range(len(measured["points"]))]
    assert lengths(service, first)["layers"][str(layer)] == measured
    rows = executed(service.database, fetch_run(service.database, first), layer)[layer][0].membership
    made = membership_like(torch.from_numpy(rows.copy()), 256, torch.Generator().manual_seed(256))[0].numpy()
    assert measured["points"][0]["retained_pairs"] == pytest.approx(count_pairs(made, PairRule(8, 4)).retained_pairs)
    with pytest.raises(NotFoundError, match="no layer 99"):
        measure_lengths(service, first, 99)


def test_a_layer_that_the_budget_puts_at_full_attention_is_timed_as_such(service, budget_run):
    """Where every head attends fully the model calls its own kernel, and its router all the same."""
    measured = measure_lengths(service, budget_run, 0, seconds=1, repeats=1)["layers"]["0"]["points"]
    assert {(point["backend"], point["retained_pairs"]) for point in measured} == {(FULL, 1.0)}
    assert all(point["routing_median"] > 0 for point in measured)
    apart = measure_lengths(service, budget_run, 1, seconds=1, repeats=1)["layers"]["1"]["points"]
    assert FULL in apart[0]["backend"].split(", ")
    assert apart[0]["retained_pairs"] < 1
