"""Generation of both modes in turn is what each gives alone, and its groups are those that were executed."""

from __future__ import annotations

import torch

from focus_runtime.composition.attach import compose
from focus_runtime.run.cached_text import generate_both, groups_afterwards
from tests.helpers import build_centroids


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


def test_a_window_over_everything_writes_as_full_attention(tiny_model, ids):
    focus = compose(tiny_model, build_centroids(tiny_model), window=100)
    steps = list(generate_both(focus, ids, max_tokens=8, temperature=1.0))
    texts = {mode: [s.token_id for s in steps if s.mode == mode] for mode in ("full", "focus")}
    assert texts["full"] == texts["focus"]
    focus.detach()
