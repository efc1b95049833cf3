"""Changes made by hand: their texts, what is refused, and the pairs they add and drop."""

from __future__ import annotations

import pytest
import torch

from focus_runtime.budget import HeadCounts, HeadException, HeadSetting, query_settings
from focus_runtime.composition.attach import compose
from focus_runtime.composition.changes import read_changes
from focus_runtime.errors import ConfigError, InputError
from tests.helpers import build_centroids, build_model, random_ids
from tests.runtime.explain.dense import explicit_masks, head_allowed

T, WINDOW = 40, 3
BUDGET = (HeadException(layer=1, head=0, top_k=2), HeadException(layer=0, head=1, full=True))
TEXTS = [
    "move:12:163:B",
    "see:12:163:1",
    "see:all:163:1",
    "silence:0:AA",
    "full:3",
    "full:3:0",
    "k:1=2",
    "window:1:0=64",
]


def composed(family="Llama", **settings):
    model = build_model(family)
    return model, compose(model, build_centroids(model, window=WINDOW), sliding_layers="focus", **settings)


def read(model, focus, ids, changes=()):
    """Logits of a changed pass, the pairs every head executed by layer, and the most probable groups."""
    with torch.no_grad(), focus.with_changes(read_changes(changes), ids.shape[1]):
        logits = model(ids, use_cache=False).logits
        groups = {layer: one.probabilities[0].argmax(-1) for layer, one in focus.assignments().items()}
        return logits, head_allowed(focus), groups


@pytest.mark.parametrize("text", TEXTS)
def test_a_change_is_read_as_it_is_written(text):
    assert [str(change) for change in read_changes([text])] == [text]


def test_a_group_may_be_a_number():
    assert read_changes(["move:1:2:1"]) == read_changes(["move:1:2:b"])


@pytest.mark.parametrize(
    "text", ["", "move:1:2", "see:1:2:3:4", "silence:x:A", "full:all", "k:1", "k:1=-1", "move:1:2:?"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(ConfigError):
        read_changes([text])


def test_too_many_are_refused():
    with pytest.raises(ConfigError, match="51 changes"):
        read_changes(["full:0"] * 51)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("move:1:3:E", "no group E; expected A to D"),
        ("move:2:3:A", "layer 2 does not run Focus"),
        ("move:1:40:A", "no token 40; expected 0 to 39"),
        ("see:1:3:9", "cannot see a later one"),
        ("full:1:2", "no key-value head 2; expected 0 to 1"),
        ("k:1=5", "there are 4 groups"),
    ],
)
def test_what_is_impossible_is_refused(text, said):
    _, focus = composed()
    with pytest.raises(InputError, match=said), focus.with_changes(read_changes([text]), T):
        pass


def test_a_layer_of_full_attention_has_no_groups_to_change():
    _, focus = composed(budget=(HeadException(layer=0, full=True),))
    with (
        pytest.raises(InputError, match="full attention, which no group changes"),
        focus.with_changes(read_changes(["silence:0:A"]), T),
    ):
        pass


CHANGES = {
    "move": ["move:0:20:C", "move:1:7:D"],
    "see": ["see:all:30:11", "see:0:35:12"],
    "silence": ["silence:0:B", "silence:1:A"],
    "heads": ["k:1=2", "window:0:0=10", "full:1:1"],
    "all": ["move:0:20:C", "see:1:30:2", "silence:1:A", "k:0:0=3"],
}


@pytest.mark.parametrize(
    ("family", "name", "budget"),
    [
        *(("Llama", name, budget) for name in CHANGES for budget in ((), BUDGET)),
        *((family, "all", BUDGET) for family in ("Gemma2", "GPT2", "Mistral")),
    ],
)
def test_the_model_computes_what_the_masks_say(family, name, budget, fresh_seed):
    changes = CHANGES[name]
    if family == "GPT2" and budget:
        budget = BUDGET[:1]
    model, focus = composed(family, budget=budget)
    for attempt in range(20):  # in some texts the moved or seeing token has that group already
        ids = random_ids(T, seed=fresh_seed % 1000 + attempt)
        before, unchanged, _ = read(model, focus, ids)
        logits, masks, _ = read(model, focus, ids, changes)
        with focus.full_attention(), explicit_masks(model, masks), torch.no_grad():
            torch.testing.assert_close(logits, model(ids, use_cache=False).logits, rtol=2e-4, atol=2e-4)
        assert torch.equal(read(model, focus, ids)[0], before), "they are gone afterwards"
        if any((masks[layer] != unchanged[layer]).any() for layer in masks):
            return
    pytest.fail("the changes never show")


@pytest.mark.parametrize("backend", ["auto", "masked", "reference", "fused", "decomposed"])
def test_every_backend_makes_them(backend, fresh_seed):
    model, focus = composed(backend=backend)
    ids = random_ids(T, seed=fresh_seed % 1000)
    logits, masks, _ = read(model, focus, ids, ["move:0:20:C", "see:all:30:11", "silence:1:B"])
    with focus.full_attention(), explicit_masks(model, masks), torch.no_grad():
        torch.testing.assert_close(logits, model(ids, use_cache=False).logits, rtol=2e-4, atol=2e-4)


def first_layer(changes, seed):
    """Masks of layer 0 before and after, whose input no change touches, and the groups before."""
    model, focus = composed()
    ids = random_ids(T, seed=seed % 1000)
    _, before, groups = read(model, focus, ids)
    _, after, moved = read(model, focus, ids, changes)
    return before[0], after[0], groups[0], moved[0]


def near_or_sink():
    apart = torch.arange(T)[:, None] - torch.arange(T)
    return (apart >= 0) & ((apart <= WINDOW) | (torch.arange(T) < 1))


def test_a_moved_token_has_the_pairs_of_its_new_group(fresh_seed):
    _, after, groups, moved = first_layer(["move:0:20:C"], fresh_seed)
    expected = groups.clone()
    expected[20] = 2
    assert torch.equal(moved, expected)
    shared = (expected[:, None] == expected) & torch.ones(T, T).tril().bool()
    assert torch.equal(after[0], shared | near_or_sink())


def test_links_that_meet_in_a_token_link_nothing_else(fresh_seed):
    before, after, _, _ = first_layer(["see:0:30:11", "see:0:35:11", "see:0:11:5"], fresh_seed)
    expected = before.clone()
    for query, key in ((30, 11), (35, 11), (11, 5)):
        expected[:, query, key] = True
    assert torch.equal(after, expected)


def test_a_silenced_group_links_nothing(fresh_seed):
    before, after, groups, _ = first_layer(["silence:0:B"], fresh_seed)
    members = (groups == 1)[:, None] & (groups == 1)
    assert torch.equal(after[0], before[0] & (near_or_sink() | ~members))


def test_changes_of_a_key_head_hold_for_its_query_heads():
    """Where query heads differ, a change of their key head or layer holds for each of them."""
    own = (HeadException(layer=0, query_head=1, full=True), HeadException(layer=0, query_head=3, top_k=0))
    _, focus = composed(budget=own)
    counts = HeadCounts(2, 4)

    def settings(*texts):
        with focus.with_changes(read_changes(texts), T):
            return query_settings(focus.config.head_groups(0, counts), counts)

    usual = HeadSetting(focus.config.top_k, WINDOW)
    full = HeadSetting(0, 0, full=True)
    assert settings("k:0=3") == [HeadSetting(3, WINDOW), full, HeadSetting(3, WINDOW), HeadSetting(3, WINDOW)]
    assert settings("full:0:1") == [usual, full, full, full]
    assert settings("window:0:0=1") == [HeadSetting(usual.top_k, 1)] * 2 + [usual, HeadSetting(0, WINDOW)]
    assert settings("k:0=0") == [HeadSetting(0, WINDOW), full, HeadSetting(0, WINDOW), HeadSetting(0, WINDOW)]


def test_a_cache_continues_with_them(fresh_seed):
    model, focus = composed()
    ids = random_ids(T, seed=fresh_seed % 1000)
    with torch.no_grad(), focus.with_changes(read_changes(["move:0:20:C", "see:all:30:11", "silence:1:B"]), T):
        whole = model(ids, use_cache=False).logits
        first = model(ids[:, :15], use_cache=True)
        rest = model(ids[:, 15:], past_key_values=first.past_key_values, use_cache=True).logits
    torch.testing.assert_close(rest, whole[:, 15:], rtol=2e-4, atol=2e-4)


def test_several_texts_at_once_are_refused():
    model, focus = composed()
    with focus.with_changes(read_changes(["silence:0:B"]), T), pytest.raises(InputError, match="2 texts at once"):
        model(random_ids(T, batch=2), use_cache=False)
