"""What the host knows of memberships without reading them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extent:
    """What the host must know of memberships: K, the most groups a token has, and whether all have as many."""

    num_groups: int
    top_k: int
    uniform: bool
