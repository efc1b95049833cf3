"""What reports that time a layer share."""

from __future__ import annotations

from typing import Any

from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.speed import LayerSetting
from paper.reports.lab import Lab

WINDOW = 128  # of a timed layer, as in the paper


def dtype_for(lab: Lab) -> str:
    """Of a layer that is timed: half precision on a GPU, where the flash kernels take nothing else."""
    return "bfloat16" if lab.device.type == "cuda" else "float32"


def layer_setting(lab: Lab, groups: int, top_k: int) -> LayerSetting:
    """One layer of the model at hand with random balanced groups, w = 128."""
    shape = lab.model.config.get_text_config()
    heads = shape.num_attention_heads
    return LayerSetting(
        heads=heads,
        key_heads=getattr(shape, "num_key_value_heads", None) or heads,
        head_size=getattr(shape, "head_dim", None) or shape.hidden_size // heads,
        num_groups=groups,
        top_k=top_k,
        window=WINDOW,
        num_sinks=lab.recipe.num_sinks,
        dtype=dtype_for(lab),
    )


def times_as_fast(slow: dict[str, Any], fast: dict[str, Any]) -> Interval:
    """Ratio of two measured times, from the slowest to the fastest repeats of both.

    Args:
        slow, fast: milliseconds with `median`, `low`, `high` and `repeats`.
    """
    return Interval(
        slow["median"] / fast["median"], slow["low"] / fast["high"], slow["high"] / fast["low"], slow["repeats"]
    )
