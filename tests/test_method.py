"""The pictures of docs/method.md against the runtime: tests/js/method.test.js reads the same example numbers."""

from __future__ import annotations

import json
import math
import re

import torch

from focus_runtime.mask.allowed_pairs import allowed_pairs
from focus_runtime.mask.rule import PairRule
from focus_runtime.routing.router import sinkhorn_potential
from tests.helpers import ROOT

SHARED = json.loads((ROOT / "tests" / "fixtures" / "method.json").read_text(encoding="utf-8"))
EXAMPLE = (ROOT / "docs" / "scripts" / "example.js").read_text(encoding="utf-8")


def example():
    """Groups of every token of the recorded example, the most probable first."""
    return [json.loads(row) for row in re.findall(r"\[[\d, ]+\]", EXAMPLE[EXAMPLE.index("order: [") :])]


def pairs_by_cause(order, top_k, window, sinks):
    """Dropped pairs, then those kept because near, by a group, by both, and as a sink alone."""
    membership = torch.tensor([sum(1 << group for group in groups[:top_k]) for groups in order])
    position = torch.arange(len(order))

    def allowed(groups, near, first):
        return allowed_pairs(groups, groups, position, position, PairRule(near, first))

    causal = torch.ones(len(order), len(order), dtype=torch.bool).tril()
    shared = ((membership[:, None] & membership[None]) != 0) & causal
    near = ((position[:, None] - position[None]) <= window) & causal
    kept = allowed(membership, window, sinks)
    causes = [~kept & causal, near & ~shared, shared & ~near, near & shared, kept & ~near & ~shared]
    return [int(pairs.sum()) for pairs in causes]


def test_pairs_of_the_example_are_those_of_the_runtime():
    order = example()
    assert len(order) == 48
    assert len(SHARED["pairs"]) >= 6
    for case in SHARED["pairs"]:
        assert pairs_by_cause(order, case["topK"], case["window"], case["sinks"]) == case["counts"]


def test_balancing_ends_in_the_runtime_s_plan():
    for case in SHARED["balance"]:
        logits = torch.tensor([case["scores"]], dtype=torch.float64)
        potential = sinkhorn_potential(logits, case["rounds"])
        plan = torch.softmax(logits + potential[:, None], dim=-1)[0]
        assert torch.allclose(plan, torch.tensor(case["plan"], dtype=torch.float64), atol=1e-9)
        assert math.isclose(float(plan.sum()), len(case["scores"]))
