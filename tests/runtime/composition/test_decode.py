"""Decode steps whose groups the kernel decides, against the whole text in one pass and against torch's routing."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache

from focus_runtime.attention.fused import fused_available
from focus_runtime.budget import HeadException
from focus_runtime.composition import decode
from focus_runtime.composition.attach import compose
from focus_runtime.composition.changes import LayerEdit
from focus_runtime.composition.modes import Edits
from focus_runtime.composition.observe import replace_assignment
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.families import logits

pytestmark = pytest.mark.skipif(not fused_available(), reason="no compiled kernels")
FIRST, TOTAL = 12, 40
BUDGET = (HeadException(layer=0, head=1, full=True), HeadException(layer=1, head=0, top_k=3, window=1))
BY_QUERY = (
    HeadException(layer=0, query_head=1, full=True),
    HeadException(layer=1, query_head=3, top_k=0, window=9),
    HeadException(layer=1, query_head=2, top_k=3),
)
KINDS = {
    "one setting": {},
    "two groups": {"top_k": 2},
    "budget": {"budget": BUDGET},
    "text sinks": {"text_sinks": 0.2, "text_sinks_from": 1},
    "query heads": {"budget": BY_QUERY},
    "text sinks and query heads": {"text_sinks": 0.2, "text_sinks_from": 1, "budget": BY_QUERY},
    "text sinks and budget": {"text_sinks": 0.2, "text_sinks_from": 1, "budget": BUDGET},
}


def composed(seed, family="Llama", *, text_sinks=None, text_sinks_from=0, dtype=torch.float32, size=16, **settings):
    model = build_model(family, num_hidden_layers=3, seed=seed, head_dim=size).to(dtype)
    centroids = build_centroids(model, num_groups=6, seed=seed)
    if text_sinks is not None:
        centroids.config = centroids.config.replace(text_sinks=text_sinks, text_sinks_from=text_sinks_from)
    return model, compose(model, centroids, **settings)


@torch.no_grad()
def in_steps(model, focus, ids):
    """Logits of all tokens but the first, and of every step its assignments."""
    cache, parts, decided = DynamicCache(config=model.config), [], []
    for start, end in [(0, FIRST), *((place, place + 1) for place in range(FIRST, TOTAL))]:
        parts.append(model(ids[:, start:end], past_key_values=cache).logits)
        decided.append(focus.assignments())
    return torch.cat(parts, dim=1), decided[1:]


@pytest.fixture
def late(count_calls):
    """Steps whose groups the compiled kernel decides."""
    return count_calls(decode.fused_step)


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        *((kind, "Llama") for kind in KINDS),
        *(("text sinks and query heads", family) for family in ("GPT2", "Gemma2", "Qwen3")),
        ("text sinks and budget", "Gemma2"),
    ],
)
def test_steps_are_the_whole_text(kind, family, fresh_seed, late, near_ties):
    model, focus = composed(fresh_seed % 1000, family, **KINDS[kind])
    ids = random_ids(TOTAL, seed=fresh_seed % 997)
    stepped, decided = in_steps(model, focus, ids)
    assert len(late) == len(focus.focused_layers) * (TOTAL - FIRST)
    torch.testing.assert_close(stepped, logits(model, ids), rtol=2e-4, atol=2e-4)
    for layer, whole in focus.assignments().items():
        for place, step in enumerate(decided, start=FIRST):
            own = step[layer]
            assert own.membership.item() == whole.membership[0, place].item()
            torch.testing.assert_close(own.probabilities[0, 0], whole.probabilities[0, place], rtol=1e-4, atol=1e-5)
            sink = whole.everywhere is not None and whole.everywhere[0, place].item()
            assert (own.everywhere is not None and own.everywhere.item()) == sink


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_under_autocast_have_the_groups_of_the_whole_text(dtype, fresh_seed, late, near_ties):
    """Which once scored with weights in half precision that the kernel read as single, and kept them."""
    model, focus = composed(fresh_seed % 1000, dtype=dtype)
    ids = random_ids(TOTAL, seed=fresh_seed % 997)
    with torch.autocast("cpu", torch.bfloat16):
        _, decided = in_steps(model, focus, ids)
        logits(model, ids)
    assert late or dtype == torch.float32  # where keys may be of another type than the hidden states
    whole = focus.assignments()[0].membership[0]  # later layers read what steps round otherwise
    assert [own[0].membership.item() for own in decided] == whole[FIRST:].tolist()
    other, _ = composed(fresh_seed % 1000, dtype=dtype)
    torch.testing.assert_close(logits(model, ids), logits(other, ids))  # nothing is left behind


def test_a_head_size_that_does_not_fit_goes_the_other_way(fresh_seed, late, near_ties):
    model, focus = composed(fresh_seed % 1000, size=24, text_sinks=0.2, text_sinks_from=1)
    ids = random_ids(TOTAL, seed=fresh_seed % 997)
    stepped, _ = in_steps(model, focus, ids)
    assert not late
    torch.testing.assert_close(stepped, logits(model, ids), rtol=2e-4, atol=2e-4)


def test_whatever_else_decides_groups_is_heard(fresh_seed, late):
    """Edits by hand and replaced assignments are no settings of the layer, so that its kernel does not know them."""
    model, focus = composed(fresh_seed % 1000)
    ids = random_ids(TOTAL, seed=fresh_seed % 997)
    with replace_assignment(focus, lambda index, router, hidden, padding: router.own_assignment(hidden)):
        in_steps(model, focus, ids)
    with focus.entered(Edits({layer: LayerEdit() for layer in range(3)})):
        in_steps(model, focus, ids)
    assert not late
