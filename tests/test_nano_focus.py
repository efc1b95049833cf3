"""examples/nano_focus.py says the whole method in one file; the runtime computes the same, with it as the oracle."""

from __future__ import annotations

import runpy
import sys

import pytest
import torch

from examples import nano_focus
from focus_runtime import compose
from focus_runtime.attention.reference import Scoring
from focus_runtime.attention.soft import gated_attention
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.router import sinkhorn_potential
from tests.helpers import ROOT, build_centroids, build_model, build_tokenizer

TOKENS = 90


@pytest.fixture
def ids():
    return torch.randint(3, 128, (2, TOKENS))


def settings(top_k):
    return nano_focus.Settings(num_groups=4, routing_dim=8, top_k=top_k, window=7, num_sinks=2)


def both(family, top_k):
    """A model composed by this file and the same by the runtime, with the same routers, in float64."""
    ours, theirs = (build_model(family, seed=3).double() for _ in range(2))
    chosen = settings(top_k)
    routers = nano_focus.compose(ours, chosen).double().eval()
    centroids = build_centroids(theirs, num_groups=4, routing_dim=8, top_k=top_k, window=7, num_sinks=2)
    with torch.no_grad():
        for layer, router in centroids.routers.items():
            router.double()
            router.projection.copy_(routers[layer].projection)
            router.centroids.copy_(routers[layer].centroids)
            routers[layer].potential.copy_(torch.randn(4))
            router.potential.copy_(routers[layer].potential)
            router.has_potential = True
    return ours, compose(theirs, centroids)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_the_runtime_computes_what_this_file_says(family, top_k, ids):
    ours, focus = both(family, top_k)
    with torch.no_grad():
        expected, found = ours(ids, use_cache=False).logits, focus.model(ids).logits
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("window", [0, 5, TOKENS])
def test_the_decomposition_is_the_mask(top_k, window):
    chosen = nano_focus.Settings(num_groups=4, top_k=top_k, window=window, num_sinks=3)
    query, key, value = torch.randn(3, 1, 2, TOKENS, 8, dtype=torch.float64)
    members = nano_focus.memberships(torch.randn(1, TOKENS, 4), top_k)
    expected = nano_focus.masked_attention(query, key, value, nano_focus.mask(members, chosen), 0.4)
    found = nano_focus.decomposed_attention(query, key, value, members[0], chosen, 0.4)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_groups_are_balanced_and_gated_as_the_runtime_does():
    scores = torch.randn(2, TOKENS, 4, dtype=torch.float64) * 3
    torch.testing.assert_close(nano_focus.sinkhorn(scores, 20), sinkhorn_potential(scores, 20))
    query, key, value = torch.randn(3, 2, 2, TOKENS, 8, dtype=torch.float64)
    groups = torch.softmax(scores, dim=-1)
    expected = nano_focus.gated_attention(query, key, value, groups, settings(1), 0.3)
    found = gated_attention(query, key, value, groups, PairRule(7, 2), Scoring(0.3), gate="log")
    torch.testing.assert_close(found, expected)


@pytest.mark.slow
def test_it_learns_from_a_text(tmp_path, monkeypatch, capsys):
    model, tokenizer = build_model(seed=1), build_tokenizer()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("It is a truth universally acknowledged, " * 4, encoding="utf-8")  # learns on one sequence of 80
    words = [tmp_path / "model", text, "--steps", "31", "--length", "80"]
    monkeypatch.setattr(sys, "argv", ["nano_focus.py", *map(str, words)])
    runpy.run_path(str(ROOT / "examples" / "nano_focus.py"), run_name="__main__")
    printed = capsys.readouterr().out
    losses = [float(line.split()[-1]) for line in printed.splitlines() if line.startswith("step")]
    assert losses[-1] < losses[0]
    assert "pairs kept" in printed


def test_it_can_be_read_in_one_sitting():
    assert len((ROOT / "examples" / "nano_focus.py").read_text(encoding="utf-8").splitlines()) <= 300
