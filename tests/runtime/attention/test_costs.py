"""The cost model behind the choice of a backend."""

from __future__ import annotations

import json

import pytest
import torch

from focus_runtime.attention import costs
from focus_runtime.mask.rule import PairRule
from tests.helpers import ROOT
from tests.runtime.attention.inputs import (
    random_membership,
)


def test_the_cost_models_constants_are_the_fitted_ones():
    fitted = json.loads((ROOT / "benchmarks" / "results" / "costs.json").read_text())["constants"]
    assert {name: getattr(costs, name) for name in fitted} == fitted


@pytest.mark.parametrize("length", [1024, 4096])
def test_costs_rank_groups_by_their_size(length):
    """More groups cost the decomposition less, and more groups a token cost it more."""
    costs_by_setting = {}
    for groups, top_k in ((4, 1), (8, 1), (8, 2)):
        sizes = costs.set_sizes(random_membership(length, groups=groups, top_k=top_k)[0])
        costs_by_setting[groups, top_k] = costs.decomposed_cost(sizes, length, PairRule(64, 4))
    assert costs_by_setting[8, 1] < costs_by_setting[4, 1] < costs_by_setting[8, 2]


def test_too_many_sets_of_groups_are_not_decomposed():
    membership = torch.full((1, 8192), (1 << 20) - 1)
    membership[0, 0] = 1 << 30  # else one group would hold every token
    assert costs.cheapest(membership, PairRule(8), costs.MachineCosts(), fused=False) == "masked"


@pytest.mark.parametrize(
    ("length", "groups", "fused", "expected"),
    [(1024, 1, 0.6, "fused"), (1024, 1, 5.0, "masked"), (4096, 16, 0.6, "fused"), (4096, 16, 5.0, "decomposed")],
)
def test_a_machine_whose_own_kernels_are_faster_takes_them(length, groups, fused, expected):
    """As with bf16 on a processor with matrix tiles, which the fused kernel does not use."""
    membership = random_membership(length, groups=groups, top_k=1)
    machine = costs.MachineCosts(fused=fused)
    assert costs.cheapest(membership, PairRule(64), machine, fused=True) == expected
