"""What reports that time a layer share."""

from __future__ import annotations

from typing import Any

from focus_explorer.reproduce.lab import Lab
from focus_runtime.measure.intervals import Interval


def dtype_for(lab: Lab) -> str:
    """Of a layer that is timed: half precision on a GPU, where the flash kernels take nothing else."""
    return "bfloat16" if lab.device.type == "cuda" else "float32"


def times_as_fast(slow: dict[str, Any], fast: dict[str, Any]) -> Interval:
    """Ratio of two measured times, from the slowest to the fastest repeats of both.

    Args:
        slow, fast: milliseconds with `median`, `low`, `high` and `repeats`.
    """
    return Interval(
        slow["median"] / fast["median"], slow["low"] / fast["high"], slow["high"] / fast["low"], slow["repeats"]
    )
