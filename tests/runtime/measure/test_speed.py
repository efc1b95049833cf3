"""Timing protocols: what is timed is what was given, in the mode it is named for, and ratios follow from times."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
import torch
import transformers

from focus_runtime.attention import focus_attention
from focus_runtime.attention.fused import fused_available
from focus_runtime.composition.attach import compose
from focus_runtime.composition.observe import observe_attention, observe_routing
from focus_runtime.config import FocusConfig
from focus_runtime.mask.counts import count_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.measure import timing
from focus_runtime.measure.loss import final_hidden
from focus_runtime.measure.speed import layer as speed_layer
from focus_runtime.measure.speed.layer import (
    LayerSetting,
    balanced_membership,
    composed_layer_speed,
    full_attention,
    layer_error,
    layer_inputs,
    layer_speed,
    tokens_like,
)
from focus_runtime.measure.speed.model import decode_speed, prefill_speed
from focus_runtime.measure.timing import MODES, attending, in_turn, timed_pass
from focus_runtime.models.structure import head_counts
from tests.helpers import build_centroids, build_model, random_ids

FOCUS = FocusConfig(num_groups=5, routing_dim=6, top_k=2, window=7, num_sinks=3)
SMALL = LayerSetting(heads=4, key_heads=2, head_size=16, num_groups=4, window=8, num_sinks=2)


def gpt2():
    """Without fields for key-value heads and head size."""
    config = transformers.GPT2Config(n_embd=64, n_head=4, n_layer=1, n_positions=64, vocab_size=128)
    config._attn_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def check_ratio(row):
    """The ratio follows from the medians, which lie between the extremes."""
    for name in ("full_ms", "focus_ms"):
        assert 0 < row[name]["low"] <= row[name]["median"] <= row[name]["high"]
    assert row["full_over_focus"] == pytest.approx(row["full_ms"]["median"] / row["focus_ms"]["median"])
    json.dumps(row)


# --- the layer's setting


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (lambda: build_model(), (4, 2, 16)),
        (lambda: build_model("Gemma", head_dim=32), (4, 2, 32)),
        (lambda: build_model("Gemma2", head_dim=8, num_key_value_heads=4), (4, 4, 8)),
        (gpt2, (4, 4, 16)),
    ],
    ids=["grouped heads", "wider heads than hidden size / heads", "narrower heads", "neither field"],
)
def test_the_setting_of_a_model_has_the_shapes_its_attention_receives(model, shape):
    network = model()
    setting = LayerSetting.of_model(network, FOCUS)
    assert (setting.heads, setting.key_heads, setting.head_size) == shape
    received = []
    focus = compose(network, build_centroids(network))
    with (
        torch.no_grad(),
        observe_attention(focus, lambda layer, q, k, *_: received.append((q.shape[1], *k.shape[1::2]))),
    ):
        final_hidden(network, random_ids(12))
    focus.detach()
    assert set(received) == {shape}
    assert setting.width == setting.hidden_size == network.config.hidden_size == 64


def test_the_setting_of_a_model_has_its_type_and_the_configuration():
    setting = LayerSetting.of_model(build_model().to(torch.bfloat16), FOCUS)
    assert setting.dtype == "bfloat16"
    assert (setting.num_groups, setting.top_k, setting.window, setting.num_sinks) == (5, 2, 7, 3)
    assert setting.routing == FOCUS
    inputs = layer_inputs(setting, 8, seed=0)
    assert [x.dtype for x in inputs[:3]] == [torch.bfloat16] * 3
    assert all(x.transpose(1, 2).is_contiguous() for x in inputs[:3])  # as models lay them out
    assert torch.equal(inputs[0], layer_inputs(setting, 8, seed=0)[0])
    assert not torch.equal(inputs[0], layer_inputs(setting, 8, seed=4)[0])


# --- its inputs


def test_random_groups_are_equally_large(fresh_seed):
    generator = torch.Generator().manual_seed(fresh_seed)
    one = balanced_membership(100, 4, 1, generator)
    assert one.shape == (1, 100)
    assert [(one == 1 << group).sum().item() for group in range(4)] == [25] * 4
    several = balanced_membership(400, 6, 3, generator)[0]
    bits = (several[:, None] >> torch.arange(6)) & 1
    assert (bits.sum(dim=1) == 3).all()
    assert several.max() < 1 << 6
    assert (bits.double().mean(dim=0) - 0.5).abs().max() < 0.15  # six deviations


def test_groups_of_another_length_have_the_same_shares(tiny_model, fresh_seed):
    focus = compose(tiny_model, build_centroids(tiny_model, num_groups=5, top_k=2))
    with torch.no_grad():
        final_hidden(tiny_model, random_ids(230, seed=fresh_seed))
    rows = focus.assignments()[0].membership[0]
    focus.detach()
    positions = tokens_like(torch.stack([rows, rows & 3]), 1000, torch.Generator().manual_seed(fresh_seed))
    assert positions.shape == (1000,)
    like = rows[positions]
    for word in set(rows.tolist()):
        share = (rows == word).double().mean().item()
        assert (like == word).sum().item() == pytest.approx(share * 1000, abs=1)


def test_full_attention_is_the_causal_softmax():
    query, key, value, _ = layer_inputs(SMALL, 50, seed=0)
    exact, keys, values = (x.double() for x in (query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)))
    scores = exact @ keys.transpose(-1, -2) / 4
    future = torch.ones(50, 50, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ values
    torch.testing.assert_close(full_attention(query, key, value).double(), expected, rtol=1e-5, atol=1e-5)


# --- what is timed


def test_a_layer_is_timed_with_what_it_kept():
    row = layer_speed(SMALL, 96, repeats=3, seed=5)
    check_ratio(row)
    membership = layer_inputs(SMALL, 96, seed=5)[3][0].numpy()
    assert row["retained_pairs"] == pytest.approx(count_pairs(membership, PairRule(8, 2)).retained_pairs)
    assert row["limit"] == pytest.approx(1 / row["retained_pairs"])
    assert row["full_ms"]["repeats"] == row["focus_ms"]["repeats"] == row["routing_ms"]["repeats"] == 3
    both = row["focus_ms"]["median"] + row["routing_ms"]["median"]
    assert row["full_over_focus_with_routing"] == pytest.approx(row["full_ms"]["median"] / both)
    assert (row["tokens"], row["seed"], row["groups"]) == (96, 5, "random")
    assert row["backend"] != "auto"
    assert row["stages_ms"]["routing"] == row["routing_ms"]["median"]
    assert not {"same_kernel_full_over_focus", "hidden_size", "routing"} & set(row)


def test_groups_may_be_given_and_its_own_kernel_takes_a_turn_with_every_pair():
    setting, groups = replace(SMALL, backend="masked"), torch.ones(1, 64, dtype=torch.int64)
    row = layer_speed(setting, 64, repeats=1, membership=groups, same_kernel=True)
    assert (row["groups"], row["backend"], row["retained_pairs"]) == ("given", "masked", 1.0)
    assert row["same_kernel_full_over_focus"] > 0


@pytest.mark.parametrize("backend", ["auto", "masked"])
def test_a_layer_is_timed_inside_a_window_of_its_own(monkeypatch, backend):
    rules, attend = set(), speed_layer.attend

    def recorded(query, key, value, membership, rule, *rest, **options):
        rules.add(rule)
        return attend(query, key, value, membership, rule, *rest, **options)

    monkeypatch.setattr(speed_layer, "attend", recorded)
    setting = replace(SMALL, backend=backend, sliding_window=12)
    fused = backend == "auto" and fused_available()
    row = layer_speed(setting, 64, repeats=1, seed=5)
    check_ratio(row)
    assert row["backend"] == ("fused" if fused else "sliding")
    assert rules == ({PairRule(8, 2, 12)} if fused else set())
    membership = layer_inputs(setting, 64, seed=5)[3][0].numpy()
    assert row["retained_pairs"] == pytest.approx(count_pairs(membership, PairRule(8, 2, 12)).retained_pairs)
    rules.clear()
    assert layer_speed(setting, 12, repeats=1)["backend"] in ("fused", "masked")  # no longer than the window
    assert rules == {PairRule(8, 2)}


# --- a layer of a composed model


@pytest.fixture
def composed(tiny_model):
    """Groups, text sinks in layer 1 and factors; routing vectors of a pass by layer; its memberships."""
    centroids = build_centroids(tiny_model, num_groups=5, top_k=2, window=7, text_sinks=0.9)
    heads = head_counts(tiny_model)
    for router in centroids.routers.values():
        router.logit_factors = torch.nn.Parameter(torch.linspace(0.5, 2, heads.query))
    vectors: dict[int, torch.Tensor] = {}
    focus = compose(tiny_model, centroids, logit_factors=True)
    with torch.no_grad(), observe_routing(centroids, on_embedding=lambda at, found: vectors.update({at: found[0]})):
        final_hidden(tiny_model, random_ids(64, seed=3))
    yield focus, vectors, {at: one.membership[0] for at, one in focus.assignments().items()}
    focus.detach()


def test_a_composed_layer_has_the_groups_of_its_tokens(composed):
    focus, vectors, memberships = composed
    sinks = torch.zeros(64, dtype=torch.bool)
    sinks[[20, 40]] = True
    row = composed_layer_speed(focus, 1, vectors[1], everywhere=sinks, repeats=2)
    found = focus.assignments()[1].membership[0]
    assert torch.equal(found[~sinks], memberships[1][~sinks])
    assert found[sinks].tolist() == [31, 31]
    assert row["retained_pairs"] == pytest.approx(
        count_pairs(found.numpy(), focus.head_masks()[1][0].rule).retained_pairs
    )
    for name in ("full_ms", "focus_ms", "routing_ms"):
        assert 0 < row[name]["low"] <= row[name]["median"] <= row[name]["high"]
        assert row[name]["repeats"] == 2
    json.dumps(row)


def test_what_is_timed_is_full_attention_and_focus_with_its_factors(composed, monkeypatch):
    focus, vectors, _ = composed
    calls, attend = [], speed_layer.focus_forward

    def noted(module, query, key, value, mask):
        out = attend(module, query, key, value, mask)[0]
        calls.append((query, key, value, out.transpose(1, 2)))
        return out, None

    monkeypatch.setattr(speed_layer, "focus_forward", noted)
    composed_layer_speed(focus, 1, vectors[1], repeats=1)
    full, sparse = calls[-2:]
    torch.testing.assert_close(full[3], full_attention(*full[:3]))
    membership = focus.assignments()[1].membership
    kept = {"window": 7, "num_sinks": focus.config.num_sinks, "backend": "reference"}
    factors = focus.routers[1].logit_factors
    share = (torch.arange(64) - 7).clamp_min(0) / torch.arange(1, 65)
    assert not torch.allclose(sparse[3], focus_attention(*sparse[:3], membership, **kept), atol=1e-3)
    scaled = sparse[0] * (factors[:, None] ** share)[..., None]
    torch.testing.assert_close(
        sparse[3], focus_attention(scaled, *sparse[1:3], membership, **kept), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-5), ("bfloat16", 3e-2)])
def test_the_error_of_a_layer_is_that_of_its_type(dtype, limit):
    error = layer_error(
        LayerSetting(heads=4, key_heads=2, head_size=16, num_groups=4, window=8, dtype=dtype), 80, seed=1
    )
    assert 0 < error["max_abs_error"] < limit
    assert 1 - limit < error["cosine"] <= 1 + 1e-12


def test_prefill_is_timed_in_turn_and_by_stage(tiny_model):
    focus = compose(tiny_model, build_centroids(tiny_model))
    row = prefill_speed(focus, random_ids(40), repeats=2)
    focus.detach()
    check_ratio(row)
    assert row["tokens"] == 40
    assert row["full_ms"]["repeats"] == row["focus_ms"]["repeats"] == 2
    assert row["focus_tokens_per_second"] == pytest.approx(40_000 / row["focus_ms"]["median"])
    stages = row["stages_ms"]
    assert set(stages["full"]) == {"attention"}
    assert {"routing", "attention"} <= set(stages["focus"])
    attention = stages["focus"]["attention"] + stages["focus"]["routing"]
    assert row["attention_full_over_focus"] == pytest.approx(stages["full"]["attention"] / attention)
    assert row["backends"]


def test_decoding_is_timed_step_by_step_and_leaves_the_model_alone(tiny_model, ids):
    with torch.no_grad():
        before = tiny_model(input_ids=ids).logits
    focus = compose(tiny_model, build_centroids(tiny_model))
    row = decode_speed(focus, ids, steps=3)
    focus.detach()
    check_ratio(row)
    assert (row["past_tokens"], row["steps"]) == (40, 3)
    assert row["full_ms"]["repeats"] == row["attention_ms"]["focus"]["repeats"] == 3
    assert row["full_tokens_per_second"] == pytest.approx(1000 / row["full_ms"]["median"])
    ratio = row["attention_ms"]["full"]["median"] / row["attention_ms"]["focus"]["median"]
    assert row["attention_full_over_focus"] == pytest.approx(ratio)
    with torch.no_grad():
        assert torch.equal(tiny_model(input_ids=ids).logits, before)


def test_the_limit_of_a_layer_with_a_sliding_window_counts_the_pairs_of_the_window():
    """Full attention computes no more than those either: one group of all tokens saves nothing."""
    setting = replace(SMALL, num_groups=1, sliding_window=12)
    row = layer_speed(setting, 100, repeats=1)
    assert row["retained_pairs"] < 0.25
    assert row["limit"] == pytest.approx(1)


def test_works_take_turns_and_the_first_call_of_each_is_not_counted():
    calls = []

    def slow():
        time.sleep(0 if calls.count("slow") else 0.2)
        calls.append("slow")

    times = in_turn({"slow": slow, "other": lambda: calls.append("other")}, 3, torch.device("cpu"))
    assert calls == ["slow", "other"] * 4
    assert list(times) == ["slow", "other"]
    assert {spread.repeats for spread in times.values()} == {3}
    assert times["slow"].median < 100


def test_each_mode_runs_its_own_attention(tiny_model, ids):
    with torch.no_grad():
        plain = final_hidden(tiny_model, ids)
        focus = compose(tiny_model, build_centroids(tiny_model))
        sparse = final_hidden(tiny_model, ids)
        hidden = {mode: timed_pass(focus, ids, mode) for mode in MODES}
        with attending(focus, "full"):
            inside = final_hidden(tiny_model, ids)
        focus.detach()
    assert torch.equal(hidden["full"][0], inside)
    torch.testing.assert_close(hidden["full"][0], plain, rtol=1e-4, atol=1e-4)
    assert torch.equal(hidden["focus"][0], sparse)
    assert not torch.allclose(sparse, plain, atol=1e-2)
    assert all(seconds > 0 for _, seconds in hidden.values())


def test_stages_that_cost_time_are_timed_in_a_call_of_their_own(tiny_model, monkeypatch):
    """As on a GPU: the call that is timed as a whole has no events about its stages."""
    monkeypatch.setattr(timing, "stages_apart", lambda devices: True)
    focus = compose(tiny_model, build_centroids(tiny_model))
    timed = []

    def work():
        timed.append(focus.seconds.enabled)
        time.sleep(0.5 if len(timed) == 1 else 0.02)
        return len(timed)

    result, seconds = timing.timed_by_stage(focus, "full", work)
    assert (result, timed) == (2, [True, False])
    assert 0.02 <= seconds < 0.5
    assert focus.seconds.enabled
    with torch.no_grad():
        timed_pass(focus, random_ids(40), "focus")
    assert focus.seconds.calls == 2  # layers of one pass
    assert focus.seconds.attention > 0
    focus.detach()
