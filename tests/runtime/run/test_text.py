"""A trace is what the model did: losses, groups, pairs and timings of both modes, and nothing stays on the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig, TextOptions
from focus_runtime.errors import Cancelled, ConfigError, InputError
from focus_runtime.fit.calibrate import calibrate_potentials
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.models.structure import attention_modules
from focus_runtime.routing.centroids import random_centroids
from focus_runtime.run import text as engine
from focus_runtime.run.text import Early, analyze, versions
from focus_runtime.run.trace import Trace
from tests.helpers import build_model, build_tokenizer

TEXT = "a small text, twice. " * 8
FOCUS = FocusConfig(num_groups=6, routing_dim=8, top_k=2, window=5, num_sinks=1)


@pytest.fixture(scope="module")
def model():
    return build_model(vocab_size=512)


@pytest.fixture(scope="module")
def centroids(model):
    routers = random_centroids(model, FOCUS)
    calibrate_potentials(model, routers, torch.randint(0, 300, (1, 64), generator=torch.Generator().manual_seed(0)))
    return routers


@pytest.fixture(scope="module")
def trace(model, centroids):
    return analyze(model, build_tokenizer(), TEXT, centroids, TextOptions(repeats=2), model_id="tiny")


def run(model, centroids, text=TEXT, *, progress=None, cancelled=lambda: False, announce=None, early=None, **options):
    calls = {"progress": progress, "announce": announce, "early": early}
    calls = {name: call for name, call in calls.items() if call is not None}
    options = TextOptions(**{"repeats": 1, **options})
    return analyze(model, build_tokenizer(), text, centroids, options, cancelled=cancelled, **calls)


def losses(model, trace):
    ids = torch.tensor([trace.tokens.ids])
    with torch.no_grad():
        return token_nll(model, final_hidden(model, ids), ids)[0].double().numpy()


@pytest.fixture
def composed(model, centroids):
    """compose(), undone at the end of the test."""
    handles = []

    def make(**settings):
        handles.append(compose(model, centroids, **settings))
        return handles[-1]

    yield make
    for focus in handles:
        focus.detach()


def has_hooks(model):
    return any(module._forward_pre_hooks or module._forward_hooks for module in attention_modules(model).values())


# --- what a trace holds


def test_the_losses_are_those_of_the_model_with_and_without_focus(model, composed, trace):
    np.testing.assert_allclose(trace.nll["full"], losses(model, trace), rtol=1e-5, atol=1e-5)
    composed()
    np.testing.assert_array_equal(trace.nll["focus"], losses(model, trace))
    assert abs(trace.nll["focus"] - trace.nll["full"]).max() > 1e-2


def test_the_layers_are_what_the_routers_decided(model, centroids, composed, trace):
    focus = composed()
    losses(model, trace)
    for layer, (index, assignment) in zip(trace.layers, focus.assignments().items(), strict=True):
        assert layer.layer == index
        np.testing.assert_array_equal(layer.membership, assignment.membership[0].numpy())
        np.testing.assert_allclose(layer.probabilities, assignment.probabilities[0].numpy(), rtol=1e-3, atol=1e-6)
        assert layer.routing.shape == (trace.num_tokens, FOCUS.routing_dim)
        np.testing.assert_array_equal(layer.centroids, centroids.routers[index].centroids.detach().numpy())
        np.testing.assert_array_equal(layer.potential, centroids.routers[index].potential.detach().numpy())
        assert layer.attention_kind == "LlamaAttention"
        assert layer.attention_mass_retained is None


def test_the_traced_mask_is_the_executed_one(trace):
    """Membership, window and sinks of the run reproduce the attention the model computed: nothing was dropped twice."""
    for layer in trace.layers:
        member, count = layer.membership, trace.num_tokens
        i, j = np.tril_indices(count)
        window, sinks = trace.info["config"]["window"], trace.info["config"]["num_sinks"]
        allowed = ((member[i] & member[j]) != 0) | (i - j <= window) | (j < sinks)
        assert allowed.mean() == pytest.approx(layer.retained_pairs)


def test_every_repeat_of_both_modes_is_timed_by_stage(trace):
    ends = [(t.mode, t.repeat) for t in trace.timings if t.stage == "end_to_end"]
    assert ends == [("full", 0), ("focus", 0), ("full", 1), ("focus", 1)]
    assert {t.stage for t in trace.timings if t.mode == "full"} == {"end_to_end", "attention"}
    assert {"end_to_end", "attention", "routing"} <= {t.stage for t in trace.timings if t.mode == "focus"}
    assert all(t.milliseconds >= 0 and t.peak_memory_bytes > 0 for t in trace.timings)
    for mode, repeat in ends:
        of_pass = {t.stage: t.milliseconds for t in trace.timings if (t.mode, t.repeat) == (mode, repeat)}
        assert 0 < of_pass["attention"] <= of_pass["end_to_end"]


def test_a_long_text_gives_its_numbers_out_before_its_timings_are_repeated(monkeypatch, model, centroids):
    events: list[tuple[str, object]] = []
    early = Early(
        measured=lambda trace: events.append(("measured", trace)), timed=lambda ts: events.append(("timed", ts))
    )
    run(model, centroids, repeats=3, early=early)
    assert events == []  # a short one is timed at once
    monkeypatch.setattr(engine, "LONG_TIMING_SECONDS", 0.0)
    whole = run(model, centroids, repeats=3, early=early)
    assert [name for name, _ in events] == ["measured", "timed", "timed"]
    first = events[0][1]
    assert isinstance(first, Trace)
    assert {t.repeat for t in first.timings} == {0}
    assert first.timings + events[1][1] + events[2][1] == whole.timings
    assert first.info == whole.info
    assert first.notes == whole.notes
    for mode in ("full", "focus"):
        np.testing.assert_array_equal(first.nll[mode], whole.nll[mode])
    for one, other in zip(first.layers, whole.layers, strict=True):
        np.testing.assert_array_equal(one.membership, other.membership)


def test_what_is_measured_after_the_timings_is_waited_for(monkeypatch, model, centroids):
    monkeypatch.setattr(engine, "LONG_TIMING_SECONDS", 0.0)
    early = Early(measured=lambda trace: pytest.fail("without its attention mass"), timed=lambda timings: None)
    assert run(model, centroids, attention_mass=True, early=early).layers[0].attention_mass_retained is not None


def test_what_was_run_is_recorded(centroids, trace):
    info = trace.info
    assert (info["model_id"], info["num_tokens"], info["dtype"]) == ("tiny", len(trace.tokens.ids), "float32")
    assert info["config"] == FOCUS.to_dict()
    assert info["centroids_name"] == centroids.name
    assert info["backend"]
    assert info["versions"] == versions() | {"threads": str(torch.get_num_threads())}
    assert versions()["torch"] == torch.__version__


# --- what is said on the way


def test_a_text_beyond_the_context_is_announced_before_any_work(model, centroids):
    """The tiny model was made for 256 positions."""
    events: list[str] = []
    trace = run(
        model,
        centroids,
        TEXT * 2,
        announce=lambda message: events.append(message),
        progress=lambda stage, _: events.append(stage),
    )
    assert "more than the 256 the model was trained for" in events[0]
    assert events[1] == "Warming up"
    assert sum("256" in event for event in events) == 1
    assert events[0] in trace.notes


def test_notes_say_what_limits_the_numbers(model, centroids):
    short = " ".join(run(model, centroids, window=60, max_tokens=50).notes)
    assert "cut to its first 50 of 168 tokens" in short
    assert "keep every pair of a text of up to 62 tokens: Focus is full attention here" in short
    assert "With 50 tokens, shares and perplexities are rough." in short


# --- stopping, and what stays behind


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 8, 11])
def test_a_run_stops_between_stages_and_layers_and_leaves_the_model_as_it_was(model, centroids, trace, after):
    before, calls = losses(model, trace), []

    def cancelled():
        calls.append(None)
        return len(calls) > after

    with pytest.raises(Cancelled):
        run(model, centroids, cancelled=cancelled)
    assert len(calls) == after + 1  # it is not called again
    assert not has_hooks(model)
    np.testing.assert_array_equal(losses(model, trace), before)


@pytest.mark.parametrize(
    ("text", "options", "error", "words"),
    [
        ("", {}, InputError, "text"),
        (TEXT, {"top_k": 7}, ConfigError, "top_k is 7"),
        (TEXT, {"window": -1}, ConfigError, "window is -1"),
        (TEXT, {"backend": "magic"}, InputError, "backend is 'magic'"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_model_runs(model, centroids, text, options, error, words):
    with pytest.raises(error, match=words):
        run(model, centroids, text, **options)
    assert not has_hooks(model)
