"""Stable functions for programs and language models."""
