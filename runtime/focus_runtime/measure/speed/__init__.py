"""Timing protocols: one attention layer, alone or as a composed model calls it, and a model's prefill and decode.

Full attention and Focus take turns within one run, so that a drift of the machine's speed hits both; every number is a
median with its extremes and its count.
"""

from focus_runtime.measure.speed.layer import (
    LayerSetting,
    balanced_membership,
    composed_layer_speed,
    layer_error,
    layer_inputs,
    layer_speed,
    tokens_like,
)
from focus_runtime.measure.speed.model import decode_speed, prefill_speed

__all__ = [
    "LayerSetting",
    "balanced_membership",
    "composed_layer_speed",
    "decode_speed",
    "layer_error",
    "layer_inputs",
    "layer_speed",
    "prefill_speed",
    "tokens_like",
]
