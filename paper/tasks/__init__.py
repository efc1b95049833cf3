"""Benchmark tasks, from lm-eval and from plain text."""
