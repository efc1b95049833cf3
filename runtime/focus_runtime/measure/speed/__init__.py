"""Timing protocols: one attention layer, alone or as a composed model calls it, and a model's prefill and decode.

Full attention and Focus take turns within one run, so that a drift of the machine's speed hits both; every number is a
median with its extremes and its count.
"""
