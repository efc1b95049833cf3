"""Sinks in the middle of a text: found from earlier tokens alone, alike in one pass, step by step and in a batch."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open

from focus_runtime.budget import HeadException
from focus_runtime.composition.attach import compose
from focus_runtime.composition.observe import observe_hidden_states, replace_assignment
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError
from focus_runtime.routing import router
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.explain.dense import explicit_masks, head_allowed

SIMILARITY, SINKS = 0.2, 1  # unrelated inputs of 64 numbers reach it now and then
BUDGET = (HeadException(layer=1, head=0, top_k=2), HeadException(layer=2, head=1, full=True))


def composed(family="Llama", *, similarity=SIMILARITY, start=1, budget=(), **settings):
    model = build_model(family, num_hidden_layers=3)
    centroids = build_centroids(model, window=3, num_sinks=SINKS)
    centroids.config = centroids.config.replace(text_sinks=similarity, text_sinks_from=start)
    return model, compose(model, centroids, budget=budget, sliding_layers="focus", **settings)


def inputs_of(model, focus, ids):
    """Input of every layer in a Focus pass, and the pass's logits."""
    seen = {}
    with torch.no_grad(), observe_hidden_states(model, focus.focused_layers, seen.__setitem__):
        logits = model(ids, use_cache=False).logits
    return seen, logits


@pytest.mark.parametrize(("family", "budget"), [("Llama", ()), ("Llama", BUDGET), ("Gemma2", BUDGET), ("GPT2", ())])
def test_they_are_those_whose_input_looks_like_the_first_tokens(family, budget, fresh_seed):
    model, focus = composed(family, budget=budget)
    ids = random_ids(50, seed=fresh_seed % 1000)
    seen, logits = inputs_of(model, focus, ids)
    expected = torch.zeros(50, dtype=torch.bool)
    counts = []
    for layer, assignment in focus.assignments().items():
        hidden = seen[layer][0].double()
        alike = hidden @ hidden[0] / (hidden.norm(dim=1) * hidden[0].norm())
        if layer >= 1:
            expected |= (alike >= SIMILARITY) & (torch.arange(50) >= SINKS)
        everywhere = assignment.membership[0] == 0b1111
        assert everywhere.tolist() == expected.tolist()
        counts.append(int(expected.sum()))
        assert layer >= 1 or counts[-1] == 0
    assert counts[-1] > 0
    masks = head_allowed(focus)
    with focus.full_attention(), explicit_masks(model, masks), torch.no_grad():
        torch.testing.assert_close(logits, model(ids, use_cache=False).logits, rtol=2e-4, atol=2e-4)


def test_a_text_continued_from_a_cache_has_the_same(fresh_seed):
    model, focus = composed(budget=BUDGET)
    ids = random_ids(40, seed=fresh_seed % 1000)
    _, whole = inputs_of(model, focus, ids)
    with torch.no_grad():
        past = model(ids[:, :17], use_cache=True)
        parts = [past.logits]
        for first, last in ((17, 30), *((at, at + 1) for at in range(30, 40))):
            past = model(ids[:, first:last], past_key_values=past.past_key_values, use_cache=True)
            parts.append(past.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=2e-4, atol=2e-4)


def test_a_padded_batch_has_those_of_its_texts(fresh_seed):
    model, _ = composed()
    long, short = random_ids(30, seed=fresh_seed % 1000), random_ids(21, seed=fresh_seed % 1000 + 1)
    batch = torch.zeros(2, 30, dtype=torch.int64)
    batch[0], batch[1, 9:] = long[0], short[0]
    mask = torch.ones(2, 30, dtype=torch.int64)
    mask[1, :9] = 0
    positions = (mask.cumsum(dim=1) - 1).clamp_min(0)
    with torch.no_grad():
        together = model(batch, attention_mask=mask, position_ids=positions, use_cache=False).logits
        alone = [model(ids, use_cache=False).logits[0] for ids in (long, short)]
    torch.testing.assert_close(together[0], alone[0], rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(together[1, 9:], alone[1], rtol=2e-4, atol=2e-4)


def test_a_file_keeps_the_setting_in_a_version_of_its_own(tmp_path):
    model = build_model()
    centroids = build_centroids(model)
    plain = save_centroids(centroids, tmp_path / "plain.safetensors")
    centroids.config = centroids.config.replace(text_sinks=0.85, text_sinks_from=3)
    assert save_centroids(centroids, tmp_path / "sinks.safetensors") != plain
    read = load_centroids(tmp_path / "sinks.safetensors").config
    assert (read.text_sinks, read.text_sinks_from) == (0.85, 3)
    versions = [safe_open(tmp_path / f"{name}.safetensors", "pt").metadata() for name in ("plain", "sinks")]
    assert [metadata["format_version"] for metadata in versions] == ["1", "3"]
    assert "text_sinks" not in versions[0]["config"]


@pytest.mark.parametrize("value", [0, -0.5, 1.5, True, "high", float("nan")])
def test_what_is_no_similarity_is_refused(value):
    with pytest.raises(ConfigError, match="text_sinks"):
        FocusConfig(text_sinks=value)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
def test_a_gpus_kernel_finds_the_same(batch, monkeypatch, fresh_seed):
    """In Triton's interpreter, for a whole text and for parts that continue a cache."""
    on_gpu = pytest.importorskip("focus_runtime.routing.on_gpu", reason="needs Triton")
    model, focus = composed(budget=BUDGET)
    ids = random_ids(40, batch=batch, seed=fresh_seed % 1000)
    _, whole = inputs_of(model, focus, ids)
    expected = {layer: each.membership for layer, each in focus.assignments().items()}
    found, route = [], on_gpu.route_on_gpu
    monkeypatch.setattr(router, "takes_hidden", lambda hidden: not torch.is_grad_enabled())
    monkeypatch.setattr(on_gpu, "route_on_gpu", lambda *given: found.append(route(*given)) or found[-1])
    _, again = inputs_of(model, focus, ids)
    assert [None if sinks is None else bool(sinks.any()) for _, _, sinks in found] == [None, True, True]
    assert all(torch.equal(each.membership, expected[layer]) for layer, each in focus.assignments().items())
    torch.testing.assert_close(again, whole, rtol=2e-4, atol=2e-4)
    with torch.no_grad():
        past = model(ids[:, :17], use_cache=True)
        rest = model(ids[:, 17:], past_key_values=past.past_key_values, use_cache=True)
    assert len(found) == 9
    torch.testing.assert_close(torch.cat([past.logits, rest.logits], 1), whole, rtol=2e-4, atol=2e-4)


CHOSEN = (7, 19)
BUDGETS = {
    "one setting": (),
    "budget": (HeadException(layer=0, head=1, full=True), HeadException(layer=1, head=0, top_k=2)),
}


def chosen_tokens(index, router, hidden, padding):
    own = router.own_assignment(hidden, padding=padding)
    tokens = torch.zeros(own.membership.shape, dtype=torch.bool)
    tokens[:, [pos for pos in CHOSEN if pos < tokens.shape[1]]] = True
    return own.in_all_groups(tokens)


@pytest.mark.parametrize(
    ("backend", "budget"),
    [("auto", "one setting"), *((name, "budget") for name in ("auto", "masked", "reference", "fused", "decomposed"))],
)
def test_all_heads_see_them(backend, budget, fresh_seed):
    model = build_model()
    focus = compose(model, build_centroids(model, window=3, num_sinks=1), budget=BUDGETS[budget], backend=backend)
    ids = random_ids(40, seed=fresh_seed % 1000)
    with torch.no_grad(), replace_assignment(focus, chosen_tokens):
        sparse = model(ids, use_cache=False).logits
    masks = head_allowed(focus)
    assert all(mask[:, pos:, pos].all() and mask[:, pos, :pos].all() for mask in masks.values() for pos in CHOSEN)
    assert not all(mask[:, -1].all() for mask in masks.values())
    with focus.full_attention(), explicit_masks(model, masks), torch.no_grad():
        expected = model(ids, use_cache=False).logits
    torch.testing.assert_close(sparse, expected, rtol=2e-4, atol=2e-4)
