"""The cost model behind `backend="auto"`: what each way of computing the same attention takes, in equal units.

One unit is the time full causal attention spends on one pair of tokens, on the same machine with the same kernel, so
that the constants carry over between machines. They are fitted by benchmarks/fit_costs.py, and
benchmarks/results/costs.json keeps the measurements and how often the choice was right.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor

from focus_runtime.attention.decomposed import subsets_of
from focus_runtime.errors import InputError

# Without a compiler: flash calls of torch. Pairs inside groups, tokens gathered and merged, calls, local pairs.
GROUP_PAIR, GROUP_TOKEN, GROUP_CALL, LOCAL_PAIR = 1.3, 150.0, 630.0, 1.0
SINK_PAIR = 4.0  # not fitted: a few sinks cost little beside the rest
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
    wanted = torch.tensor(subsets, dtype=torch.int64, device=signatures.device)[:, None]
    return (((signatures & wanted) == wanted) * counts).sum(dim=1).tolist()


def decomposed_terms(sizes: list[int], length: int, window: int) -> tuple[float, float, float, float]:
    """What the decomposition of one text is made of: pairs inside sets, tokens in sets, sets, local pairs."""
    reach = min(window + 64, length)  # a local block computes its own queries' keys too
    return sum(size * (size + 1) / 2 for size in sizes), sum(sizes), len(sizes), length * reach


def decomposed_cost(sizes: list[int], length: int, window: int, num_sinks: int) -> float:
    """Units for one text by the decomposition."""
    factors = (GROUP_PAIR, GROUP_TOKEN, GROUP_CALL, LOCAL_PAIR)
    terms = decomposed_terms(sizes, length, window)
    return sum(map(operator.mul, factors, terms)) + SINK_PAIR * length * num_sinks


def masked_term(length: int) -> float:
    """Pairs masked attention computes for one text."""
    return length * (length + MASKED_BLOCK) / 2


def masked_cost(length: int) -> float:
    """Units for one text by masked attention."""
    return MASKED_PAIR * masked_term(length)


def cheapest_without_compiler(membership: Tensor, *, window: int, num_sinks: int) -> str:
    """ "decomposed" or "masked", by the model above, for a batch of texts."""
    length = membership.shape[1]
    total = 0.0
    for row in membership:
        sizes = set_sizes(row)
        if sizes is None:
            return "masked"
        total += decomposed_cost(sizes, length, window, num_sinks)
    return "decomposed" if total < masked_cost(length) * membership.shape[0] else "masked"
