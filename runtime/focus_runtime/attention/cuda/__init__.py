"""Exact Focus attention on CUDA: packing, decomposition, and the choice of a backend."""
