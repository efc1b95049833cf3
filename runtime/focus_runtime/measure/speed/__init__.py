"""Timing protocols: one attention layer, and a whole model's prefill and decode, Focus and full attention.

Full attention and Focus take turns within one run, so that a drift of the machine's speed hits both; every number is a
median with its extremes and its count.
"""

from focus_runtime.measure.speed.inputs import (
    LayerPart,
    LayerSetting,
    balanced_membership,
    layer_inputs,
    membership_like,
)
from focus_runtime.measure.speed.layer import layer_error, layer_speed
from focus_runtime.measure.speed.model import decode_speed, prefill_speed

__all__ = [
    "LayerPart",
    "LayerSetting",
    "balanced_membership",
    "decode_speed",
    "layer_error",
    "layer_inputs",
    "layer_speed",
    "membership_like",
    "prefill_speed",
]
