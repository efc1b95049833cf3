"""Exact Focus attention on CUDA: packing, variable-length flash kernels, decomposition, and the choice between them."""
