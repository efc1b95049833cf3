"""Benchmarks through lm-eval, an optional extra."""
