"""Kernels in Triton; the functions that run them stand beside this package."""
