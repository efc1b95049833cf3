"""Attention functions that take `window`, `num_sinks`, `scale` and `softcap` as keywords, for tests."""

from __future__ import annotations

import functools
import inspect

from focus_runtime.attention import decode, decomposed, decomposed_backward, flex, fused, masked, reference, soft
from focus_runtime.attention.reference import Scoring
from focus_runtime.config import CONSTANT
from focus_runtime.mask.rule import PairRule
from tests.runtime.attention import gated_reference


def by_keyword(function):
    """The function with a keyword for each field of `PairRule` and `Scoring`."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args, window=None, num_sinks=0, growth=CONSTANT, scale=None, softcap=None, **kwargs):
        if "rule" in parameters:
            kwargs["rule"] = PairRule(window, num_sinks, growth=growth)
        if "scoring" in parameters:
            kwargs["scoring"] = Scoring(scale, softcap)
        elif "scale" in parameters:
            assert softcap is None
            kwargs["scale"] = scale
        return function(*args, **kwargs)

    return call


decode_attention = by_keyword(decode.decode_attention)
decomposed_attention = by_keyword(decomposed.decomposed_attention)
differentiable_attention = by_keyword(decomposed_backward.differentiable_attention)
flex_focus_attention = by_keyword(flex.flex_focus_attention)
fused_attention = by_keyword(fused.fused_attention)
gpu_decomposition = by_keyword(decomposed.gpu_decomposition)
gated_attention = by_keyword(soft.gated_attention)
gated_attention_reference = by_keyword(gated_reference.gated_attention_reference)
masked_attention = by_keyword(masked.masked_attention)
order_tokens = by_keyword(flex.order_tokens)
reference_attention = by_keyword(reference.reference_attention)
sliding_attention = by_keyword(masked.sliding_attention)
straight_through_attention = by_keyword(decomposed_backward.straight_through_attention)
