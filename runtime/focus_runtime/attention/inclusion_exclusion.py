"""Which causal calls count every pair of tokens with a common group exactly once, for any k.

The tokens of one group, in text order, are an ordinary causal sequence. With several groups a token, one call per group
counts a pair once for every group it shares, and inclusion-exclusion puts that right: over all sets U of groups, calls
on the tokens that belong to all of U count with sign (-1)^(|U|+1). For k = 1 that is one call per group, for k = 2 the
calls per group less the calls per signature. What is taken away was counted before, so the difference is stable:
amplification at most 2^(k-1), never full attention minus a complement (METHOD section 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from focus_runtime.errors import InputError

MOST_CALLS = 512  # sets of groups beyond which the calls cost more than dense attention at any length


@dataclass(frozen=True, slots=True)
class CausalSet:
    """Tokens that belong to all of some groups, in text order.

    Attributes:
        groups: the groups as a bit set.
        rows: (n,) int64, the tokens.
    """

    groups: int
    rows: Tensor

    @property
    def sign(self) -> int:
        """+1 or -1 by inclusion-exclusion."""
        return 1 if self.groups.bit_count() % 2 else -1


def causal_sets(membership: Tensor) -> Iterator[CausalSet]:
    """Every set of groups that some token has in full, for one text: (T,) int64 -> the calls of the decomposition."""
    signatures, code_T = torch.unique(membership, return_inverse=True)
    for subset in subsets_of(signatures.tolist()):
        holders = (signatures & subset) == subset
        rows = torch.nonzero(holders[code_T]).flatten()
        yield CausalSet(subset, rows)


def subsets_of(signatures: list[int]) -> list[int]:
    """Non-empty sub-bit-sets of some bit sets, each once, ascending by size.

    Raises:
        InputError: more than `MOST_CALLS` of them.
    """
    subsets: set[int] = set()
    for signature in signatures:
        part = signature
        while part > 0:
            subsets.add(part)
            part = (part - 1) & signature
            if len(subsets) > MOST_CALLS:
                raise InputError(
                    f"membership makes more than {MOST_CALLS} sets of groups, one call each in backend 'decomposed'",
                    expected="fewer groups a token",
                    fix='use backend="auto" or "masked"',
                )
    return sorted(subsets, key=lambda part: (part.bit_count(), part))
