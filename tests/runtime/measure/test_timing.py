"""The timing protocol: both modes run what they are named for, and medians have their extremes."""

from __future__ import annotations

import time

import torch

from focus_runtime.attention.fused import matrix_tiles_available
from focus_runtime.composition.attach import compose
from focus_runtime.measure import timing
from focus_runtime.measure.loss import final_hidden
from focus_runtime.measure.timing import MODES, Spread, attending, in_turn, machine, timed_pass
from tests.helpers import build_centroids, random_ids


def test_a_spread_is_the_median_with_its_extremes():
    assert Spread.of([3.0, 1.0, 2.0, 10.0]) == Spread(median=2.5, low=1.0, high=10.0, repeats=4)


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


def test_the_stages_of_a_pass_are_those_of_its_mode(tiny_model, ids):
    focus = compose(tiny_model, build_centroids(tiny_model))
    with torch.no_grad():
        _, seconds = timed_pass(focus, ids, "focus")
        stages = dict(focus.seconds.seconds)
        assert 0 < stages["attention"] + stages["routing"] <= seconds
        timed_pass(focus, ids, "full")
    assert set(focus.seconds.seconds) == {"attention"}
    focus.detach()


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


def test_the_machine_is_named():
    facts = machine()
    assert facts["torch"] == torch.__version__
    assert facts["threads"] == torch.get_num_threads()
    assert facts["fused_kernel"].startswith(("compiled", "not available: "))
    assert ("matrix tiles" in facts["fused_kernel"]) == matrix_tiles_available()
    assert "gpu" not in facts
