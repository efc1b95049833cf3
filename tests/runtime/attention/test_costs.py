"""What auto chooses on the CPU: the cost model, what is measured on a machine, and the choice."""

from __future__ import annotations

import json
from dataclasses import astuple

import pytest
import torch

from focus_runtime.attention import choose_backend, costs, focus_attention
from focus_runtime.attention.costs import GROUPS, LONG, RULE, SHORT, MachineCosts, fitted, machine_costs, measure
from focus_runtime.attention.dispatch import choose_on_gpu
from focus_runtime.attention.fused import matrix_tiles_available
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import Extent, PairRule
from tests.helpers import ROOT
from tests.runtime.attention.inputs import (
    FP32,
    assert_same,
    good,
    needs_compiler,
    oracle,
    random_inputs,
    random_membership,
)


def test_the_cost_models_constants_are_the_fitted_ones():
    fitted = json.loads((ROOT / "benchmarks" / "results" / "costs.json").read_text())["constants"]
    inside = {f"FUSED_{name.upper()}": value for name, value in costs.IN_VECTORS._asdict().items()}
    assert {name: (vars(costs) | inside)[name] for name in fitted} == fitted


def test_too_many_sets_of_groups_are_not_decomposed():
    membership = torch.full((1, 8192), (1 << 20) - 1)
    membership[0, 0] = 1 << 30  # else one group would hold every token
    assert costs.cheapest(membership, PairRule(8), costs.MachineCosts(), fused=False) == "masked"


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
        "masked": machine.masked * costs.MASKED_PAIR * costs.masked_term(SHORT),
        "decomposed": costs.decomposed_cost(sizes, LONG, RULE, machine),
        "fused": machine.fused * (terms[0] + machine.inside.copy * terms[1] + machine.inside.local * terms[2]),
    }
    assert astuple(fitted(units, short, long, tiles=machine.tiles)) == pytest.approx(astuple(machine))
    del units["fused"]
    assert fitted(units, short, long, tiles=machine.tiles).fused == MachineCosts().fused


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.long)])
def test_this_machine_is_measured(dtype):
    machine = measure(dtype)
    assert all(0.01 < value < 100 for value in (machine.masked, machine.overhead, machine.fused))
    assert machine.tiles == (dtype == torch.bfloat16 and matrix_tiles_available())


def test_it_is_measured_once_and_kept_for_the_next_process(cache, measured, monkeypatch):
    first = machine_costs(torch.float32)
    assert machine_costs(torch.float32) == first
    monkeypatch.setattr(costs, "_known", {})
    assert machine_costs(torch.float32) == first
    [path] = (cache / "costs").iterdir()
    assert machine_costs(torch.bfloat16) == MachineCosts(masked=2.0)
    path.write_text('{"masked": 1.0, "other')
    monkeypatch.setattr(costs, "_known", {})
    assert machine_costs(torch.float32) == MachineCosts(masked=3.0)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 97)
        assert machine_costs(torch.float32) == MachineCosts(masked=4.0)
    assert measured == [torch.float32, torch.bfloat16, torch.float32, torch.float32]


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


LONG_TEXT, SHORT_TEXT = 4096, 256
PADDED = torch.ones(1, 1, dtype=torch.bool)


@pytest.mark.parametrize("triton", [True, False])
@pytest.mark.parametrize(
    ("length", "changes", "with_triton", "without"),
    [
        (200, {}, "decomposed", "masked"),
        (1 << 20, {"softcap": 30.0}, "decomposed", "flex"),
        (4096, {"top_k": 0}, "decomposed", "flex"),
        (4096, {"window": 5000}, "decomposed", "flex"),  # it covers the text
        (9000, {"window": 5000}, "flex", "flex"),  # so large a window is not looked through
        (4096, {"key_padding": PADDED}, "flex", "flex"),
        (4096, {"gradient": True}, "flex", "flex"),
        (4096, {"dtype": torch.float32}, "flex", "flex"),
        (4096, {"dtype": torch.float64}, "masked", "masked"),
        (4096, {"queries": 100}, "flex", "flex"),
        (4096, {"queries": 1}, "masked", "masked"),
    ],
)
def test_the_choice_on_a_gpu(triton, length, changes, with_triton, without, monkeypatch):
    monkeypatch.setattr(
        "focus_runtime.attention.decomposed.attention_fits",
        lambda _, query, *rest: triton and query.dtype.itemsize == 2,
    )
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *_, **__: True)
    given = {"window": 128, "key_padding": None, "softcap": None, "gradient": False} | changes
    extent, dtype = Extent(8, given.pop("top_k", 3), True), given.pop("dtype", torch.bfloat16)
    query = torch.empty(1, 8, given.pop("queries", length), 64, dtype=dtype, device="meta")
    key = torch.empty(1, 8, length, 64, dtype=dtype, device="meta")
    assert choose_on_gpu(query, key, extent, **given) == (with_triton if triton else without)


def test_flex_that_fails_on_this_gpu_is_not_chosen(monkeypatch):
    """Its tiles exceed the shared memory of some GPUs at head size 256 or in fp32."""
    monkeypatch.setattr("focus_runtime.attention.flex.works", lambda *_, **__: False)
    query = torch.empty(1, 1, 4096, 256, dtype=torch.float32, device="meta")
    given = {"window": 128, "key_padding": None, "softcap": None, "gradient": True}
    assert choose_on_gpu(query, query, Extent(8, 2, True), **given) == "masked"
    monkeypatch.setattr("focus_runtime.attention.dispatch.has_backward", lambda query: True)
    assert choose_on_gpu(query, query, Extent(8, 2, True), **given) == "decomposed"  # memory linear in T
    assert choose_on_gpu(query, query, Extent(8, 3, True), **given) == "masked"
    assert choose_on_gpu(query, query, Extent(8, 2, True), **(given | {"gradient": False})) == "masked"


def test_fused_refuses_gradients_but_runs_without_them():
    inputs, membership = random_inputs(20, dtype=torch.float32), random_membership(20)
    inputs[1].requires_grad_()
    with pytest.raises(InputError, match="gradient"):
        focus_attention(*inputs, membership, window=3, backend="fused")


@pytest.mark.parametrize(
    ("length", "top_k", "window", "changes", "expected"),
    [
        (LONG_TEXT, 1, 64, {}, "decomposed"),
        (SHORT_TEXT, 1, 64, {}, "masked"),
        (LONG_TEXT, 3, 64, {}, "masked"),  # 4 groups: every pair shares one
        (LONG_TEXT, 1, LONG_TEXT, {}, "masked"),
        (LONG_TEXT, 1, 64, {"softcap": 5.0}, "masked"),
        (LONG_TEXT, 1, 64, {"key_padding": torch.ones(1, LONG_TEXT, dtype=torch.bool)}, "masked"),
    ],
)
def test_choice_of_backend_without_a_compiler(length, top_k, window, changes, expected, monkeypatch):
    monkeypatch.setattr("focus_runtime.attention.dispatch.fused_runs", lambda *_: False)
    query, membership = torch.empty(1, 1, length, 8), random_membership(length, top_k=top_k)
    assert choose_backend(query, query, membership, window=window, **changes) == expected
    step = torch.empty(1, 1, 1, 8)
    assert choose_backend(step, query, membership, window=window, **changes) == "decode"


@needs_compiler
@pytest.mark.parametrize(
    ("query", "gradient", "expected"),
    [
        (torch.empty(1, 1, LONG_TEXT, 8), False, "fused"),
        (torch.empty(1, 1, LONG_TEXT, 8, dtype=torch.bfloat16), False, "fused"),
        (torch.empty(1, 1, LONG_TEXT, 8), True, "decomposed"),
        (torch.empty(1, 1, LONG_TEXT, 8, dtype=torch.float64), False, "decomposed"),
        (torch.empty(1, 1, LONG_TEXT, 12), False, "decomposed"),
        (torch.empty(1, 1, 8, LONG_TEXT).transpose(2, 3), False, "decomposed"),
        (torch.empty(1, 1, LONG_TEXT, 8, device="meta"), False, "masked"),
    ],
)
def test_choice_of_backend_with_a_compiler(query, gradient, expected):
    assert choose_backend(query, query, random_membership(LONG_TEXT), window=64, gradient=gradient) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"key_padding": torch.ones(1, 6, dtype=torch.bool)},
        {"softcap": 5.0},
        {"query": torch.zeros(1, 4, 3, 8)},
    ],
)
def test_decomposed_refuses_what_it_cannot_do(changes):
    with pytest.raises(InputError, match="decomposed"):
        focus_attention(**{**good(), **changes, "backend": "decomposed"})


@needs_compiler
def test_fused_refuses_what_it_cannot_do():
    inputs = {name: x.double() if name in ("query", "key", "value") else x for name, x in good().items()}
    with pytest.raises(InputError, match="fused"):
        focus_attention(**inputs, backend="fused")


def test_decode_for_many_queries_is_masked_attention(fresh_seed):
    inputs, membership = random_inputs(200, dtype=torch.float32), random_membership(200)
    actual = focus_attention(*inputs, membership, window=5, backend="decode", return_lse=True)
    assert_same(actual, oracle(inputs, membership, window=5, scale=8**-0.5), FP32)
