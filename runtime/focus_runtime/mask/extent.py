"""What the host knows of memberships without reading them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extent:
    """What the host must know of memberships without looking.

    Attributes:
        num_groups: K.
        top_k: the most groups that a token has.
        uniform: whether all have as many.
        beyond: some tokens may have more than `top_k` all the same, as tokens do that belong to every group; only the
            kernels of attention/cuda/grouped.py take that, and compute those few queries apart.
    """

    num_groups: int
    top_k: int
    uniform: bool
    beyond: bool = False
