"""A text from its key-value cache: a prompt continued, and a text while it is typed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError
from focus_runtime.run.cached_text import LiveText, generate_both, groups_afterwards
from tests.helpers import build_centroids, build_model, random_ids


def test_greedy_tokens_are_those_of_generate(tiny_model, ids):
    plain = tiny_model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=-1)[0, 40:].tolist()
    focus = compose(tiny_model, build_centroids(tiny_model))
    sparse = tiny_model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=-1)[0, 40:].tolist()
    steps = list(generate_both(focus, ids, max_tokens=8))
    assert [s.token_id for s in steps if s.mode == "full"] == plain
    assert [s.token_id for s in steps if s.mode == "focus"] == sparse
    whole = torch.cat([ids, torch.tensor([sparse])], dim=1)
    assert [s.groups for s in steps if s.mode == "focus"] == groups_afterwards(focus, whole, 40)
    focus.detach()


def test_temperature_is_repeatable_and_one_mode_may_end_first(tiny_model, ids):
    focus = compose(tiny_model, build_centroids(tiny_model))
    drawn = [
        [s.token_id for s in generate_both(focus, ids, max_tokens=6, temperature=1.0, seed=seed)] for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    first = next(generate_both(focus, ids, max_tokens=6)).token_id
    steps = list(generate_both(focus, ids, max_tokens=6, stop_ids={first}))
    assert [s.token_id for s in steps if s.mode == "full"] == [first]
    focus.detach()


def live_text(family="Llama", **settings):
    model = build_model(family)
    focus = compose(model, build_centroids(model, window=3), sliding_layers="focus", **settings)
    focus.detach()
    return model, LiveText(focus)


def at_once(model, live, ids):
    with live.focus.attached(), torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        return logits, {
            layer: one.probabilities[0].argmax(-1).numpy() for layer, one in live.focus.assignments().items()
        }


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Mistral", "GPT2"])
def test_groups_are_those_of_the_whole_text(family, fresh_seed):
    model, live = live_text(family)
    whole = random_ids(60, seed=fresh_seed % 1000)[0].tolist()
    draw = np.random.default_rng(fresh_seed)
    for _ in range(8):
        ids = whole[: int(draw.integers(1, 60))]
        if draw.random() < 0.5:
            ids[int(draw.integers(len(ids)))] = 5  # a change in the middle
        with live.focus.attached():
            read = live.read(ids)
        assert 1 <= read <= len(ids)
        logits, groups = at_once(model, live, ids)
        torch.testing.assert_close(live.logits, logits, rtol=2e-4, atol=2e-4)
        for layer, own in groups.items():
            np.testing.assert_array_equal(live.groups[layer], own)


def test_one_more_token_reads_one():
    _, live = live_text()
    ids = random_ids(40)[0].tolist()
    with live.focus.attached():
        assert [live.read(ids[:count]) for count in (30, 31, 31, 33, 20, 40)] == [30, 1, 1, 2, 1, 20]


def test_between_readings_the_model_is_the_untouched_one():
    model, live = live_text()
    ids = random_ids(20)
    with torch.no_grad():
        before = model(ids, use_cache=False).logits
        with live.focus.attached():
            live.read(ids[0].tolist())
        assert torch.equal(model(ids, use_cache=False).logits, before)


def test_sinkhorn_assignment_is_refused():
    model = build_model()
    focus = compose(model, build_centroids(model), assignment="sinkhorn")
    with pytest.raises(InputError, match="looks at the whole text"):
        LiveText(focus)
