"""The cost model behind `backend="auto"`: what each way of computing the same attention takes, in equal units.

One unit is the time full causal attention spends on one pair of tokens, on the same machine with the same kernel, so
that the constants carry over between machines. They are fitted by benchmarks/fit_costs.py, and
benchmarks/results/costs.json keeps the measurements and how often the choice was right.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor

from focus_runtime.attention.inclusion_exclusion import subsets_of
from focus_runtime.errors import InputError
from focus_runtime.mask.rule import PairRule

# Without a compiler: flash calls of torch. Pairs inside groups, tokens gathered and merged, calls, local pairs.
GROUP_PAIR, GROUP_TOKEN, GROUP_CALL, LOCAL_PAIR = 1.3, 150.0, 630.0, 1.0
SINK_PAIR = 4.0  # not fitted: a few sinks cost little compared with the rest
MASKED_PAIR, MASKED_BLOCK = 1.1, 256
# The fused kernel, in units of its own pass by class: see `by_class_is_faster` in fused.cpp.
FUSED_LOCAL, FUSED_DENSE, FUSED_COPY = 1.2, 1.1, 100.0


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
        window: w.

    Returns:
        Pairs inside sets, tokens in sets, sets, local pairs.
    """
    reach = min(window + 64, length)  # a local block computes its own queries' keys too
    return sum(size * (size + 1) / 2 for size in sizes), sum(sizes), len(sizes), length * reach


def decomposed_cost(sizes: list[int], length: int, rule: PairRule) -> float:
    """Units for one text by the decomposition.

    Args:
        sizes: tokens of every set of groups, see `set_sizes`.
        length: T.
        rule: window and sinks.
    """
    factors = (GROUP_PAIR, GROUP_TOKEN, GROUP_CALL, LOCAL_PAIR)
    terms = decomposed_terms(sizes, length, rule.window)
    return sum(map(operator.mul, factors, terms)) + SINK_PAIR * length * rule.num_sinks


def masked_term(length: int) -> float:
    """Pairs masked attention computes for one text."""
    return length * (length + MASKED_BLOCK) / 2


def masked_cost(length: int) -> float:
    """Units for one text by masked attention."""
    return MASKED_PAIR * masked_term(length)


def cheapest_without_compiler(membership: Tensor, rule: PairRule) -> str:
    """ "decomposed" or "masked", by the model above, for a batch of texts (B, T)."""
    length = membership.shape[1]
    total = 0.0
    for row in membership:
        sizes = set_sizes(row)
        if sizes is None:
            return "masked"
        total += decomposed_cost(sizes, length, rule)
    return "decomposed" if total < masked_cost(length) * membership.shape[0] else "masked"
