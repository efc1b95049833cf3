"""From which length Focus is faster, from measured lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where the times of full attention and Focus cross.

    Attributes:
        kind: "interpolated", "from the start" (faster at every measured length), "never" (slower at every one) or
            "mixed" (slower at the longest, faster at a shorter one).
        tokens: length of equal times, between two measured lengths; None unless interpolated.
        below, above: the measured lengths on both sides; None unless interpolated.
        clear: whether the repeats of the two modes do not overlap at the longest measured length.
    """

    kind: Literal["interpolated", "from the start", "never", "mixed"]
    tokens: float | None = None
    below: int | None = None
    above: int | None = None
    clear: bool = True


def crossing(points: Sequence[Mapping[str, Any]]) -> Crossing | None:
    """The length from which Focus with routing stays faster up to the longest measured length.

    Between two measured lengths the logarithm of the ratio of the times is taken as linear in the logarithm of the
    length; beyond them nothing is claimed.

    Args:
        points: `tokens`, `full_median`, `full_low`, `full_high`, the same of `focus`, `routing_median`.

    Returns:
        None without a point.
    """
    rows = sorted(points, key=lambda row: row["tokens"])
    if not rows:
        return None
    gains = [math.log(row["full_median"] / (row["focus_median"] + row["routing_median"])) for row in rows]
    last = rows[-1]
    routing = last["routing_median"]
    clear = last["full_low"] > last["focus_high"] + routing or last["full_high"] < last["focus_low"] + routing
    slower = [number for number, gain in enumerate(gains) if gain <= 0]
    if not slower:
        return Crossing("from the start", clear=clear)
    at = slower[-1]
    if at == len(rows) - 1:
        return Crossing("never" if len(slower) == len(rows) else "mixed", clear=clear)
    below, above = rows[at]["tokens"], rows[at + 1]["tokens"]
    part = gains[at] / (gains[at] - gains[at + 1])
    tokens = math.exp(math.log(below) + part * (math.log(above) - math.log(below)))
    return Crossing("interpolated", tokens, below, above, clear)
