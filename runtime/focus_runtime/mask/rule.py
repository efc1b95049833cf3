"""Which pairs of tokens may attend to each other, and exact counts of why. It knows nothing of attention kernels.

Pair (i, j) is allowed when j <= i and (membership[i] & membership[j] or i - j <= window or j < num_sinks).
Causes, disjoint: `local_only` (near, no shared group), `group_only` (shared group, far), `local_and_group`,
`sink_only` (far, no shared group, j is a sink), `dropped`.
"""

from __future__ import annotations

import torch
from torch import Tensor

CAUSES = ("local_only", "group_only", "local_and_group", "sink_only", "dropped")


def allowed_pairs(
    membership_q: Tensor, membership_k: Tensor, position_q: Tensor, position_k: Tensor, window: int, num_sinks: int
) -> Tensor:
    """The hard mask between some queries and some keys (METHOD section 3, with sinks).

    Args:
        membership_q, membership_k: (..., Tq) and (..., Tk) int64 bit sets.
        position_q, position_k: (..., Tq) and (..., Tk) integers counted from the first real token.
        window: w; num_sinks: s.

    Returns:
        (..., Tq, Tk) bool.
    """
    distance = position_q[..., :, None] - position_k[..., None, :]
    shared = (membership_q[..., :, None] & membership_k[..., None, :]) != 0
    return (distance >= 0) & (shared | (distance <= window) | (position_k[..., None, :] < num_sinks))


def narrow(membership: Tensor) -> Tensor:
    """The same bit sets in as few bytes as they need: comparing them is most of the mask's cost."""
    largest = int(membership.max())
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if largest <= torch.iinfo(dtype).max and int(membership.min()) >= 0:
            return membership.to(dtype)
    return membership
