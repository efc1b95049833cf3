"""One attention layer of the model's shape, timed with random balanced groups."""

from typing import Any

from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.speed.layer import LayerSetting, layer_speed
from paper.lab.lab import Lab

WINDOW = 128  # of a timed layer, as in the paper


def layer_dtype(lab: Lab) -> str:
    """Half precision on a GPU, where the flash kernels take nothing else."""
    return "bfloat16" if lab.device.type == "cuda" else "float32"


def layer_setting(lab: Lab, groups: int, top_k: int) -> LayerSetting:
    """One layer of the model at hand, w = 128."""
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
        dtype=layer_dtype(lab),
    )


def layer_times(lab: Lab, groups: int, top_k: int, length: int, repeats: int = 3) -> dict[str, Any]:
    """What `layer_speed` measured, and `ratio`: times as fast as torch's full attention, with its spread."""
    setting = layer_setting(lab, groups, top_k)
    measured = layer_speed(setting, length, repeats=repeats, seed=length, device=str(lab.device))
    lab.log(
        f"one layer, {length:,} tokens, K={groups}, k={top_k}: full {measured['full_ms']['median']:.1f} ms, Focus "
        f"{measured['focus_ms']['median']:.1f} ms ({measured['backend']})"
    )
    return {**measured, "ratio": times_as_fast(measured["full_ms"], measured["focus_ms"])}


def times_as_fast(slow: dict[str, Any], fast: dict[str, Any]) -> Interval:
    """Ratio of two measured times (milliseconds), from the slowest to the fastest repeats of both."""
    low, high = slow["low"] / fast["high"], slow["high"] / fast["low"]
    return Interval(slow["median"] / fast["median"], low, high, slow["repeats"])
