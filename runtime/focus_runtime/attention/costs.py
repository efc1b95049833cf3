"""The cost model behind `backend="auto"` on the CPU: what each way of computing the same attention takes.

One unit is the time torch's full causal attention spends on one pair of tokens. The constants are fitted by
benchmarks/fit_costs.py; benchmarks/results/costs.json keeps the measurements and how often the choice was right. How
the kernels of another machine, precision or number of threads compare is measured there: see calibration.py.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from focus_runtime.attention.inclusion_exclusion import subsets_of
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import PairRule

FROM_TOKENS = 512  # a machine is measured for texts from here on: shorter ones take a millisecond a layer whatever runs
# Without a compiler: flash calls of torch. Pairs inside groups, tokens gathered and merged, calls, local pairs.
GROUP_PAIR, GROUP_TOKEN, GROUP_CALL, LOCAL_PAIR = 1.3, 150.0, 630.0, 1.0
SINK_PAIR = 4.0  # not fitted: a few sinks cost little compared with the rest
MASKED_PAIR, MASKED_BLOCK = 1.1, 256
# The fused kernel, in units of its own pass by class: see `by_class_is_faster` in fused.cpp.
FUSED_LOCAL, FUSED_DENSE, FUSED_COPY = 1.2, 1.1, 100.0
# The same where it multiplies in matrix tiles, which make a pair cheap and leave masks and copies what they were: read
# off 8 settings on a Xeon with AMX (LOG.md, 2026-11-23).
TILES_LOCAL, TILES_DENSE, TILES_COPY = 3.4, 1.4, 170.0
# The fused kernel's time is foretold within a few percent, that of torch's calls by a third too low at worst: they have
# to promise at least this much.
PROMISED_GAIN = 0.85
# Queries of its tile and vector, and those that share a copy of keys, with AVX-512: LANES, VECTORS and SUBTILES there.
TILE, VECTOR, CHUNK = 32, 16, 1024


class FusedCosts(NamedTuple):
    """Costs in the fused kernel, over that of a pair in its pass by class.

    Attributes:
        local: of a pair near in the text.
        dense: of a pair in the dense pass.
        copy: of a key that is copied, for a chunk of queries.
    """

    local: float
    dense: float
    copy: float


IN_VECTORS = FusedCosts(FUSED_LOCAL, FUSED_DENSE, FUSED_COPY)
IN_TILES = FusedCosts(TILES_LOCAL, TILES_DENSE, TILES_COPY)


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """How this machine differs from the one the constants were fitted on, 1 where it does not.

    Attributes:
        masked: time of masked attention over the model's.
        overhead: time of the decomposition besides its pairs, over the model's.
        fused: the fused kernel's time for a pair of its pass by class, over torch's for a pair of full attention.
        tiles: whether the fused kernel multiplies in matrix tiles.
    """

    masked: float = 1.0
    overhead: float = 1.0
    fused: float = 0.6
    tiles: bool = False

    @property
    def inside(self) -> FusedCosts:
        """Costs in the fused kernel."""
        return IN_TILES if self.tiles else IN_VECTORS


def class_terms(membership: Tensor, rule: PairRule) -> tuple[float, float, float]:
    """Terms of the fused kernel's pass by class, as `by_class_is_faster` of fused.cpp counts them.

    Args:
        membership: (T,) int64 bit sets.
        rule: window and sinks.

    Returns:
        Pairs in whole tiles, keys copied, local pairs.
    """
    signatures, counts = torch.unique(membership, return_counts=True)
    meets = ((signatures[:, None] & signatures[None, :]) != 0).double() @ counts.double()
    queries = torch.where(counts <= VECTOR, VECTOR, torch.ceil(counts / TILE) * TILE)
    copies = torch.ceil(counts / CHUNK)
    length = membership.shape[0]
    local = length * min(rule.near(length // 2) + rule.num_sinks + TILE, length)
    return (queries * meets / 2).sum().item(), (copies * meets / 2).sum().item(), local


def by_class_cost(membership: Tensor, rule: PairRule, inside: FusedCosts) -> float:
    """Time of the fused kernel's pass by class over one text, in pairs of that pass.

    Args:
        membership: (T,) int64 bit sets.
        rule: window and sinks.
        inside: costs in the kernel.
    """
    pairs, copied, local = class_terms(membership, rule)
    return pairs + inside.copy * copied + inside.local * local


def fused_cost(membership: Tensor, rule: PairRule, machine: MachineCosts) -> float:
    """Units for one text by the fused kernel, in the faster of its two ways.

    Args:
        membership: (T,) int64 bit sets.
        rule: window and sinks.
        machine: see `MachineCosts`.
    """
    dense = machine.inside.dense * membership.shape[0] ** 2 / 2
    return machine.fused * min(by_class_cost(membership, rule, machine.inside), dense)


def set_sizes(membership: Tensor) -> list[int] | None:
    """Tokens of every set of groups the decomposition calls, for one text; None when there are too many sets."""
    signatures, counts = torch.unique(membership, return_counts=True)
    try:
        subsets = subsets_of(signatures.tolist())
    except InputError:
        return None
    required = torch.tensor(subsets, dtype=torch.int64, device=signatures.device)[:, None]
    return (((signatures & required) == required) * counts).sum(dim=1).tolist()


def decomposed_terms(sizes: list[int], length: int, window: int) -> tuple[float, float, float, float]:
    """What the decomposition of one text is made of.

    Args:
        sizes: tokens of every set of groups, see `set_sizes`.
        length: T.
        window: w, of a query in the middle where it grows.

    Returns:
        Pairs inside sets, tokens in sets, sets, local pairs.
    """
    reach = min(window + 64, length)  # a local block computes its own queries' keys too
    return sum(size * (size + 1) / 2 for size in sizes), sum(sizes), len(sizes), length * reach


def decomposed_cost(sizes: list[int], length: int, rule: PairRule, machine: MachineCosts = MachineCosts()) -> float:
    """Units for one text by the decomposition.

    Args:
        sizes: tokens of every set of groups, see `set_sizes`.
        length: T.
        rule: window and sinks.
        machine: see `MachineCosts`; by default the one of the fit.
    """
    factors = (GROUP_PAIR, machine.overhead * GROUP_TOKEN, machine.overhead * GROUP_CALL, LOCAL_PAIR)
    terms = decomposed_terms(sizes, length, rule.near(length // 2))
    return sum(map(operator.mul, factors, terms)) + SINK_PAIR * length * rule.num_sinks


def masked_term(length: int) -> float:
    """Pairs masked attention computes for one text."""
    return length * (length + MASKED_BLOCK) / 2


def masked_cost(length: int) -> float:
    """Units for one text by masked attention."""
    return MASKED_PAIR * masked_term(length)


def cheapest(membership: Tensor, rule: PairRule, machine: MachineCosts, *, fused: bool) -> str:
    """ "fused", "decomposed" or "masked", by the model above, for a batch of texts.

    Args:
        membership: (B, T) int64 bit sets.
        rule: window and sinks.
        machine: see `MachineCosts`.
        fused: whether the fused kernel can run.
    """
    length = membership.shape[1]
    cost = {"masked": machine.masked * masked_cost(length) * membership.shape[0]}
    sizes = [set_sizes(row) for row in membership]
    if all(row is not None for row in sizes):
        cost["decomposed"] = sum(decomposed_cost(row, length, rule, machine) for row in sizes if row is not None)
    if fused:
        cost["fused"] = PROMISED_GAIN * sum(fused_cost(row, rule, machine) for row in membership)
    return min(cost, key=cost.__getitem__)
