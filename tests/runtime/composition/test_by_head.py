"""Heads of unequal settings in few calls of the GPU's kernels: the same logits as setting by setting.

Without a GPU the kernels run in Triton's interpreter, on the CPU and in fp32.
"""

from __future__ import annotations

import pytest
import torch

from focus_runtime.budget import HeadException
from focus_runtime.composition import by_head, sparse
from focus_runtime.composition.attach import compose
from focus_runtime.gpu.launch import Launches
from tests.helpers import build_centroids, build_model, needs_triton, random_ids

needs_triton()
ON_GPU = torch.cuda.is_available()
pytestmark = pytest.mark.gpu if ON_GPU else pytest.mark.slow
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
TOLERANCE = 0.05 if ON_GPU else 1e-4  # relative, of all logits
BUDGETS = {
    "windows": (HeadException(layer=0, head=0, window=9),),
    "full": (HeadException(layer=0, head=0, full=True), HeadException(layer=0, head=1, window=0)),
    "top_k": (HeadException(layer=0, head=1, top_k=2, window=5),),
    "query heads": (HeadException(layer=0, query_head=1, window=9), HeadException(layer=0, query_head=2, full=True)),
    "no groups": (HeadException(layer=0, query_head=3, top_k=0, window=5),),
    "top_k and full": (HeadException(layer=0, head=1, top_k=2), HeadException(layer=0, head=0, full=True)),
}


@pytest.fixture
def kernels(monkeypatch):
    """The kernels take calls on the CPU too; gives the names of those that ran."""
    names, run = [], Launches.run

    def noted(self, name, *arguments):
        names.append(name)
        return run(self, name, *arguments)

    monkeypatch.setattr(Launches, "run", noted)

    def enable():
        if not ON_GPU:  # where the CPU's own kernel would take calls before these are asked
            monkeypatch.setattr(by_head, "attention_fits", lambda *_: True)
            monkeypatch.setattr(sparse, "_in_fused_call", sparse._in_gpu_calls)
            for name in ("is_step", "defers"):
                monkeypatch.setattr(f"focus_runtime.composition.layer.{name}", lambda *_: False)

    return names, enable


@torch.no_grad()
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("text_sinks", [None, 0.2])
@pytest.mark.parametrize("short", [False, True])
def test_the_logits_are_those_of_each_setting(budget, text_sinks, short, kernels, monkeypatch, fresh_seed):
    if not short:
        monkeypatch.setattr("focus_runtime.attention.cuda.pairwise.MOST_WORK", {1: 0, 2: 0})
    names, enable = kernels
    model = build_model(num_hidden_layers=1).to(DEVICE, DTYPE)
    centroids = build_centroids(model, window=12, num_sinks=2, text_sinks=text_sinks)
    ids = random_ids(90, batch=2, seed=fresh_seed).to(DEVICE)
    focus = compose(model, centroids, budget=budget)
    with monkeypatch.context() as patch:
        patch.setattr(by_head, "attention_fits", lambda *_: False)
        expected = model(input_ids=ids, use_cache=False).logits.float()
    names.clear()
    enable()
    actual = model(input_ids=ids, use_cache=False).logits.float()
    assert "decomposed" in focus.backend_names
    assert (actual - expected).norm() / expected.norm() < TOLERANCE
    if short:
        assert names.count("pairwise") == 1
        assert "near" not in names
        return
    calls = 2 if budget in (BUDGETS["top_k"], BUDGETS["no groups"]) else 1  # one for each top-k
    assert names.count("near") == calls
    in_groups = calls - (budget == BUDGETS["no groups"])  # else nothing is in all groups
    assert names.count("rest") == (0 if text_sinks is None else in_groups)


@torch.no_grad()
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_decode_steps_continue_it(budget, kernels, monkeypatch, fresh_seed):
    names, enable = kernels
    model = build_model(num_hidden_layers=1).to(DEVICE, DTYPE)
    centroids = build_centroids(model, window=12, num_sinks=2)
    ids = random_ids(60, seed=fresh_seed).to(DEVICE)
    compose(model, centroids, budget=budget)
    with monkeypatch.context() as patch:
        patch.setattr(by_head, "attention_fits", lambda *_: False)
        expected = model(input_ids=ids, use_cache=False).logits[:, 50:].float()
    enable()
    out = model(input_ids=ids[:, :51], use_cache=True)
    logits = [out.logits[:, -1:]]
    names.clear()
    for place in range(51, 60):
        out = model(input_ids=ids[:, place : place + 1], past_key_values=out.past_key_values, use_cache=True)
        logits.append(out.logits)
    several = ["sets"] if budget in (BUDGETS["top_k"], BUDGETS["no groups"], BUDGETS["top_k and full"]) else []
    assert names == (["route", *several, "chunk", "join"] * 9 if ON_GPU else ["chunk", "join"] * 9)
    assert (torch.cat(logits, 1).float() - expected).norm() / expected.norm() < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_a_long_text_has_its_full_heads_apart(budget, kernels, monkeypatch, fresh_seed):
    _, enable = kernels
    monkeypatch.setattr(by_head, "FULL_APART_FROM", 80)
    monkeypatch.setattr("focus_runtime.attention.cuda.pairwise.MOST_WORK", {1: 0, 2: 0})
    model = build_model(num_hidden_layers=1).to(DEVICE, DTYPE)
    ids = random_ids(90, seed=fresh_seed).to(DEVICE)
    focus = compose(model, build_centroids(model, window=12), budget=budget)
    with monkeypatch.context() as patch:
        patch.setattr(by_head, "attention_fits", lambda *_: False)
        expected = model(input_ids=ids, use_cache=False).logits.float()
    enable()
    actual = model(input_ids=ids, use_cache=False).logits.float()
    assert (actual - expected).norm() / expected.norm() < TOLERANCE
    assert ("full attention" in focus.backend_names) == any(exception.full for exception in budget)


@torch.no_grad()
def test_a_kernel_that_fails_leaves_it_to_each_setting(kernels, monkeypatch, fresh_seed):
    _, enable = kernels
    monkeypatch.setattr("focus_runtime.gpu.usable._failed", set())
    model = build_model(num_hidden_layers=1).to(DEVICE, DTYPE)
    ids = random_ids(90, seed=fresh_seed).to(DEVICE)
    compose(model, build_centroids(model, window=12), budget=BUDGETS["full"])
    expected = model(input_ids=ids, use_cache=False).logits.float()

    def broken(*_):
        raise RuntimeError("no kernel image is available")

    enable()
    monkeypatch.setattr(Launches, "run", broken)
    with pytest.warns(RuntimeWarning, match="left out: no kernel image is available"):
        actual = model(input_ids=ids, use_cache=False).logits.float()
    assert (actual - expected).norm() / expected.norm() < TOLERANCE
