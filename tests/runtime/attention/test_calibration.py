"""Measured once on a machine, kept in the user's cache, and what is measured explains itself."""

from __future__ import annotations

from dataclasses import astuple

import pytest
import torch

from focus_runtime.attention import choose_backend, costs
from focus_runtime.attention.costs import GROUPS, LONG, RULE, SHORT, MachineCosts, fitted, machine_costs, measure
from focus_runtime.attention.fused import matrix_tiles_available
from tests.runtime.attention.inputs import needs_compiler, random_membership


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and what was measured."""
    monkeypatch.setattr(costs, "default_cache_dir", lambda: tmp_path)
    monkeypatch.setattr(costs, "_known", {})
    return tmp_path


@pytest.fixture
def measured(monkeypatch):
    """Types that were measured, each with costs of its own."""
    seen = []

    def count(dtype):
        seen.append(dtype)
        return MachineCosts(masked=float(len(seen)))

    monkeypatch.setattr(costs, "measure", count)
    return seen


@pytest.mark.parametrize(
    "machine",
    [MachineCosts(), MachineCosts(1.4, 3.0, 4.5), MachineCosts(0.8, 0.2, 0.3), MachineCosts(1.5, 2.0, 0.4, tiles=True)],
)
def test_the_fit_finds_the_machine_that_its_model_describes(machine):
    short, long = (random_membership(length, groups=GROUPS)[0] for length in (SHORT, LONG))
    sizes, terms = costs.set_sizes(long), costs.class_terms(short, RULE)
    units = {
        "masked": machine.masked * costs.masked_cost(SHORT),
        "decomposed": costs.decomposed_cost(sizes, LONG, RULE, machine),
        "fused": machine.fused * (terms[0] + machine.inside.copy * terms[1] + machine.inside.local * terms[2]),
    }
    assert astuple(fitted(units, short, long, tiles=machine.tiles)) == pytest.approx(astuple(machine))
    del units["fused"]
    assert fitted(units, short, long, tiles=machine.tiles).fused == MachineCosts().fused


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_this_machine_is_measured(dtype):
    machine = measure(dtype)
    assert all(0.01 < value < 100 for value in (machine.masked, machine.overhead, machine.fused))
    assert machine.tiles == (dtype == torch.bfloat16 and matrix_tiles_available())


def test_it_is_measured_once_by_type_and_threads_and_kept(cache, measured, monkeypatch):
    first = machine_costs(torch.float32)
    assert machine_costs(torch.float32) == first
    assert machine_costs(torch.bfloat16) != first
    monkeypatch.setattr(torch, "get_num_threads", lambda: 97)
    assert machine_costs(torch.float32) != first
    assert measured == [torch.float32, torch.bfloat16, torch.float32]
    monkeypatch.undo()


def test_the_next_process_reads_what_was_measured(cache, measured, monkeypatch):
    first = machine_costs(torch.float32)
    monkeypatch.setattr(costs, "_known", {})
    assert machine_costs(torch.float32) == first
    assert len(measured) == 1
    [path] = (cache / "costs").iterdir()
    path.write_text('{"masked": 1.0, "other')
    monkeypatch.setattr(costs, "_known", {})
    assert machine_costs(torch.float32) == MachineCosts(masked=2.0)
    assert len(measured) == 2


def test_a_cache_that_cannot_be_written_is_no_error(cache, measured):
    (cache / "costs").write_text("a file where the folder should be")
    assert machine_costs(torch.float32) == machine_costs(torch.float32)
    assert len(measured) == 1


@needs_compiler
@pytest.mark.parametrize(
    ("length", "changes", "expected"),
    [
        (4096, {}, "decomposed"),
        (512, {}, "decomposed"),
        (511, {}, "fused"),
        (4096, {"softcap": 3.0}, "fused"),
        (4096, {"key_padding": torch.ones(1, 4096, dtype=torch.bool)}, "fused"),
    ],
)
def test_the_choice_follows_the_machine(length, changes, expected, monkeypatch):
    monkeypatch.setattr("focus_runtime.attention.dispatch.machine_costs", lambda dtype: MachineCosts(fused=6.0))
    query = torch.empty(1, 1, length, 8, dtype=torch.bfloat16)
    membership = random_membership(length, groups=16)
    assert choose_backend(query, query, membership, window=64, **changes) == expected
