"""Heads of unequal settings in few calls of the GPU's kernels: the same logits as setting by setting.

Without a GPU the kernels run in Triton's interpreter, on the CPU and in fp32.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from transformers import DynamicCache, StaticCache

from focus_runtime.budget import HeadException
from focus_runtime.composition import decode, gpu
from focus_runtime.composition.attach import compose
from focus_runtime.gpu import Launches
from focus_runtime.models.structure import cache_argument
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


def also_long(cases, *every_time):
    """The cases of a grid, of which the interpreter runs only some every time."""
    return [case if ON_GPU or case in every_time else pytest.param(*case, marks=pytest.mark.long) for case in cases]


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "short"), also_long(itertools.product(BUDGETS, (False, True)), ("query heads", False), ("top_k", True))
)
def test_the_logits_are_those_of_each_setting(kind, short, kernels, monkeypatch, fresh_seed):
    budget, text_sinks = BUDGETS[kind], random.choice([None, 0.2])
    if not short:
        monkeypatch.setattr("focus_runtime.attention.cuda.pairwise.MOST_WORK", {1: 0, 2: 0})
    names, enable = kernels
    model = build_model(num_hidden_layers=1).to(DEVICE, DTYPE)
    growth = None if text_sinks is None else (20, 70)
    settings = {"text_sinks": text_sinks, "text_sinks_from": 0, "window_growth": growth}
    centroids = build_centroids(model, window=12, num_sinks=2, **settings)
    ids = random_ids(90, batch=2, seed=fresh_seed).to(DEVICE)
    focus = compose(model, centroids, budget=budget)
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "attention_fits", lambda *_: False)
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
    in_groups = 2 if kind == "top_k" else 1  # calls: one for each top-k with groups
    assert names.count("near") == 1  # for all of them
    assert names.count("far 0") == in_groups
    assert names.count("rest") == (0 if text_sinks is None else in_groups)


@torch.no_grad()
@pytest.mark.parametrize(
    "kind,", also_long([(kind,) for kind in BUDGETS], ("query heads",), ("no groups",), ("top_k and full",))
)
def test_decode_steps_continue_it(kind, kernels, monkeypatch, fresh_seed):
    names, enable = kernels
    model = build_model(num_hidden_layers=1).to(DEVICE, DTYPE)
    centroids = build_centroids(model, window=6, num_sinks=2, window_growth=(20, 55))
    ids = random_ids(57, seed=fresh_seed).to(DEVICE)
    compose(model, centroids, budget=BUDGETS[kind])
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "attention_fits", lambda *_: False)
        expected = model(input_ids=ids, use_cache=False).logits[:, 52:].float()
    enable()
    out = model(input_ids=ids[:, :53], use_cache=True)
    logits = [out.logits[:, -1:]]
    names.clear()
    for place in range(53, 57):
        out = model(input_ids=ids[:, place : place + 1], past_key_values=out.past_key_values, use_cache=True)
        logits.append(out.logits)
    assert names == (["decide" if ON_GPU else "route", "chunk", "join"] * 4)
    assert (torch.cat(logits, 1).float() - expected).norm() / expected.norm() < TOLERANCE


KINDS = BUDGETS | {"one setting": ()}


@pytest.fixture
def late(kernels, monkeypatch):
    """Steps whose groups a kernel decides, on the CPU too; gives the names of the kernels that ran."""
    names, enable = kernels

    def late():
        enable()
        if not ON_GPU:
            monkeypatch.setattr("focus_runtime.composition.layer.defers", decode.defers)
            monkeypatch.setattr(decode, "few_tokens_fit", lambda _: False)
            monkeypatch.setattr(decode, "HALVES", (DTYPE,))
            monkeypatch.setattr(decode, "takes_hidden", lambda _: not torch.is_grad_enabled())
            monkeypatch.setattr(decode, "attention_fits", lambda *_: True)

    return names, late


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "text_sinks"),
    also_long(
        [*((kind, 0.02) for kind in KINDS), ("one setting", None), ("query heads", None)],
        ("query heads", 0.02),
        ("one setting", None),
    ),
)
def test_steps_whose_groups_a_kernel_decides(kind, text_sinks, late, monkeypatch, fresh_seed, near_ties):
    """The same logits, groups and sinks as in the whole text, and three kernels a layer."""
    names, enable = late
    model = build_model(num_hidden_layers=2, seed=fresh_seed % 1000).to(DEVICE, DTYPE)
    growth = (20, 55) if text_sinks else None
    settings = {"text_sinks": text_sinks, "text_sinks_from": 1, "window_growth": growth}
    centroids = build_centroids(model, window=6, num_sinks=2, **settings)
    for router in centroids.routers.values():
        router.logit_factors = torch.nn.Parameter(torch.rand(4, device=DEVICE) + 0.5, requires_grad=False)
    centroids.config = centroids.config.replace(logit_factors=True)
    focus = compose(model, centroids, budget=KINDS[kind])
    for attempt in itertools.count():
        ids = random_ids(57, seed=fresh_seed + attempt).to(DEVICE)
        ids[0, 53] = ids[0, 0]  # likely a text sink
        with monkeypatch.context() as patch:
            for module in (gpu, decode):
                patch.setattr(module, "attention_fits", lambda *_: False)
            expected = model(input_ids=ids, use_cache=False).logits[:, 51:].float()
        whole = focus.assignments()
        if text_sinks is None or whole[1].everywhere[0, 52:].any():  # one text in a hundred has none in the steps
            break
    enable()
    past = StaticCache(config=model.config, max_cache_len=64) if text_sinks else DynamicCache(config=model.config)
    logits = [model(input_ids=ids[:, :52], **cache_argument(model, past), use_cache=True).logits[:, -1:]]
    names.clear()
    found = set()
    for place in range(52, 57):
        out = model(input_ids=ids[:, place : place + 1], **cache_argument(model, past), use_cache=True)
        logits.append(out.logits)
        for layer, own in focus.assignments().items():
            if not ON_GPU:  # rounding decides near ties there
                assert own.membership.item() == whole[layer].membership[0, place].item()
            sink = whole[layer].everywhere is not None and whole[layer].everywhere[0, place].item()
            assert (own.everywhere is not None and own.everywhere.item()) == sink
            found.add(sink)
    assert names == ["decide", "chunk", "join"] * 2 * 5
    assert (torch.cat(logits, 1).float() - expected).norm() / expected.norm() < TOLERANCE
    assert focus.backend_names == "decode"
    assert text_sinks is None or found == {True, False}


@torch.no_grad()
def test_a_step_whose_kernel_fails_goes_another_way(late, monkeypatch, fresh_seed):
    _, enable = late
    monkeypatch.setattr("focus_runtime.gpu._failed", set())
    model = build_model(num_hidden_layers=2).to(DEVICE, DTYPE)
    ids = random_ids(60, seed=fresh_seed).to(DEVICE)
    compose(model, build_centroids(model, window=12, text_sinks=0.2))
    expected = model(input_ids=ids, use_cache=False).logits[:, 50:].float()
    past = DynamicCache(config=model.config)
    logits = [model(input_ids=ids[:, :51], **cache_argument(model, past), use_cache=True).logits[:, -1:]]

    def broken(*_):
        raise RuntimeError("no kernel image is available")

    enable()
    monkeypatch.setattr(Launches, "run", broken)

    def rest():
        for place in range(51, 60):
            newest = ids[:, place : place + 1]
            logits.append(model(input_ids=newest, **cache_argument(model, past), use_cache=True).logits)

    with pytest.warns(RuntimeWarning, match="left out: no kernel image is available"):
        rest()
    assert (torch.cat(logits, 1).float() - expected).norm() / expected.norm() < TOLERANCE
